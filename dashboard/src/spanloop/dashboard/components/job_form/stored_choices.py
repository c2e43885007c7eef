"""Values that settings of a job can have because the store has episodes with them."""

from collections.abc import Mapping, Sequence

from spanloop.dashboard import resources
from spanloop.dashboard.queries.facets import fetch_values
from spanloop.dashboard.queries.failures import fetch_classes
from spanloop.dashboard.view_models.filters import Filters
from spanloop.foundation.errors import SpanloopError
from spanloop.store.data_sets import fetch_data_sets

Choices = Mapping[str, Sequence[str]]
"""The values by setting."""


def fetch_choices() -> Choices:
    """Return the values of each setting that names something stored; none where ClickHouse does not respond.

    Raises:
        StoreError: ClickHouse rejected a statement.
    """
    try:
        store = resources.store()
        fields = {name: fetch_values(store, Filters(), name)["value"].to_list() for name in _FIELDS.values()}
        classes, data_sets = fetch_classes(store, Filters()), fetch_data_sets(store)
    except SpanloopError as error:
        if not error.is_transient:
            raise
        # the form works without it: what is typed is checked when the job makes its dataset
        return {}
    names = dict.fromkeys(each.name for each in data_sets)
    return {
        **{setting: fields[name] for setting, name in _FIELDS.items()},
        "failure_classes": classes,
        "without_failure_classes": classes,
        "data_set": [*names, *(each.reference for each in data_sets)],
    }


_FIELDS: Mapping[str, str] = {
    "services": "service",
    "agents": "agent",
    "models": "model",
    "marks": "mark",
    "without_marks": "mark",
}
"""The filter with the values of each setting."""
