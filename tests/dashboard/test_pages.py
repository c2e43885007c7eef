"""Every page over a real store: seeded, empty, down."""

import pytest
from dashboard_seeding import Seeded

PAGES = ["overview", "episodes", "failures", "rewards", "jobs", "models"]


@pytest.mark.parametrize("page", PAGES)
def test_a_seeded_page_draws_without_an_exception(page: str, seeded: Seeded, open_page) -> None:
    app = open_page(page)
    assert not app.exception
    assert not app.error
