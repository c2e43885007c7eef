"""The configuration of ClickHouse's tables in S3 is a document of the keys that ClickHouse knows; no server ran it."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import clickhouse_s3

SCRIPT = Path(__file__).parents[2] / "docker" / "clickhouse_s3.py"


def test_the_policy_of_new_tables_is_a_cached_disk_in_the_bucket() -> None:
    root = ET.fromstring(clickhouse_s3.configuration("https://bucket.s3.eu-central-1.amazonaws.com/clickhouse"))
    policy = root.findtext("merge_tree/storage_policy")
    disk = root.findtext(f"storage_configuration/policies/{policy}/volumes/main/disk")
    disks = root.find("storage_configuration/disks")
    assert disks is not None
    below = disks.findtext(f"{disk}/disk")
    assert (disks.findtext(f"{disk}/type"), disks.findtext(f"{below}/type")) == ("cache", "s3")
    assert disks.findtext(f"{below}/endpoint") == "https://bucket.s3.eu-central-1.amazonaws.com/clickhouse/"
    assert disks.findtext(f"{below}/use_environment_credentials") == "1"
    assert not [element for element in root.iter() if "key" in element.tag or "secret" in element.tag]


def test_another_address_is_refused() -> None:
    refused = subprocess.run([sys.executable, str(SCRIPT), "s3://bucket"], capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "expected a URL such as https://" in refused.stderr
