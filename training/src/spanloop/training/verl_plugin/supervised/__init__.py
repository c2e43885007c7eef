"""SFT and DPO in verl's supervised trainer."""
