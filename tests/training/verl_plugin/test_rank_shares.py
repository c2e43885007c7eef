"""The division of a batch's groups among ranks."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from spanloop.training.verl_plugin.rank_shares import RankShares, share_groups, with_padding


def shared(tokens: Sequence[int], rows: Sequence[int], ranks: int) -> RankShares | None:
    """Groups of the given packed tokens and numbers of rows, in turn."""
    groups = list(zip(tokens, rows, strict=True))
    tags = [
        {"group": str(number), "group_tokens": size}
        for number, (size, count) in enumerate(groups)
        for _ in range(count)
    ]
    return share_groups(tags, ranks)


def test_ranks_get_whole_groups_and_nearly_equal_tokens() -> None:
    shares = shared([100, 60, 50, 40], [2, 1, 3, 1], 2)
    assert shares is not None
    assert shares == RankShares([[0, 1, 6], [2, 3, 4, 5]], 140 * 2 / 250)
    assert with_padding(shares.rows, [7]) == [0, 1, 6, 7, 2, 3, 4, 5]


def test_fewer_groups_than_ranks_are_not_kept_whole() -> None:
    assert shared([100, 60], [2, 2], 3) is None


@given(st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 4)), min_size=1, max_size=12), st.integers(1, 4))
def test_each_row_is_on_the_rank_of_its_group(groups: list[tuple[int, int]], ranks: int) -> None:
    tokens, rows = [size for size, _ in groups], [count for _, count in groups]
    shares = shared(tokens, rows, ranks)
    if shares is None:
        assert len(groups) < ranks
        return
    group_of = [number for number, count in enumerate(rows) for _ in range(count)]
    owners = {group_of[row]: rank for rank, own in enumerate(shares.rows) for row in own}
    assert sorted(row for own in shares.rows for row in own) == list(range(len(group_of)))
    assert sum(len({group_of[row] for row in own}) for own in shares.rows) == len(groups) == len(owners)
    sums = [sum(tokens[group] for group, owner in owners.items() if owner == rank) for rank in range(ranks)]
    assert max(sums) - min(sums) <= max(tokens)
    most = max(map(len, shares.rows))
    padding = range(len(group_of), most * ranks)
    order = with_padding(shares.rows, padding)
    assert [order[rank * most : rank * most + len(own)] for rank, own in enumerate(shares.rows)] == shares.rows
    assert sorted(order) == list(range(most * ranks))
