"""Continuity of a network, member by member: what proves it, what reveals a loss, and what is evidence of nothing."""

from msgspec.structs import replace

from podpool.ledger.domain.continuity import Continuity, Evidence, Stage, examine
from podpool.ledger.domain.incarnations import Commits
from podpool.ledger.domain.members import Members
from podpool.ledger.domain.receipts import Receipt

A, B = "cluster-a", "cluster-b"
BOTH = Members(frozenset({A, B}))
PROVEN = Continuity(server="server-1", members=BOTH)
PROVING = PROVEN.start("server-2", challenge="first")
RECOVERING = PROVEN.declare_lost("declared")
KNOWN, LOST = Receipt(0, "w", 3), Receipt(0, "w", 9)


def _answer(state: Continuity, member: str, evidence: Evidence, *, asked: bool = False) -> Continuity:
    return state.answer(member, state.challenge, evidence, agents_asked=asked, challenge="next")


class TestIncarnations:
    def test_commits_of_two_writers_may_alternate(self) -> None:
        commits = Commits()
        for writer in "xxyxyy":
            commits = commits.commit(writer)
        made = [("x", 1), ("x", 2), ("y", 3), ("x", 4), ("y", 5), ("y", 6)]
        assert all(commits.contain(Receipt(0, *each)) for each in made)
        lost = [("x", 5), ("y", 2), ("y", 7), ("z", 1), ("", 0)]
        assert not any(commits.contain(Receipt(0, *each)) for each in lost)

    def test_a_lost_commit_stays_unknown_when_the_revision_is_above_it(self) -> None:
        commits = Commits().commit("x")
        lost = commits.commit("x")
        for _ in range(3):
            commits = commits.commit("after the loss")
        assert not commits.contain(Receipt(0, lost.incarnation, lost.revision))

    def test_many_commits_of_one_writer_need_one_interval(self) -> None:
        commits = Commits()
        for _ in range(100):
            commits = commits.commit("x").commit("x").commit("y")
        assert len(commits.earlier) == 2


class TestProof:
    def test_the_same_server_needs_no_proof(self) -> None:
        assert PROVEN.start("server-1", challenge="c") is PROVEN

    def test_another_server_must_be_proven_by_every_member(self) -> None:
        assert (PROVING.stage, PROVING.awaited) == (Stage.PROVING, frozenset({A, B}))
        assert not PROVING.may_change(A)
        once = _answer(PROVING, A, Evidence(known=(KNOWN,)))
        assert once.awaited == {B}
        proven = _answer(once, B, Evidence(), asked=True)
        assert (proven.stage, proven.epoch, proven.server) == (Stage.PROVEN, 0, "server-2")
        assert proven.may_change(A)

    def test_a_second_replica_continues_the_question_of_the_first(self) -> None:
        assert PROVING.start("server-2", challenge="second") is PROVING

    def test_a_record_on_another_device_replaces_the_answers(self) -> None:
        started = PROVEN.start("server-2", challenge="c", continuous=True)
        assert started == replace(PROVEN, server="server-2")

    def test_a_network_without_members_is_proven(self) -> None:
        assert Continuity().start("server-1", challenge="c").stage is Stage.PROVEN

    def test_the_first_upgrade_counts_as_proven_once(self) -> None:
        old = Continuity(members=BOTH)
        assert old.start("server-1", challenge="c", first=True).stage is Stage.PROVEN
        assert old.start("server-1", challenge="c").stage is Stage.PROVING
        assert PROVEN.start("server-2", challenge="c", first=True).stage is Stage.PROVING

    def test_answers_to_another_challenge_and_of_strangers_do_not_count(self) -> None:
        evidence = Evidence(known=(KNOWN,))
        assert PROVING.answer(A, "earlier", evidence, agents_asked=True, challenge="n") is PROVING
        assert _answer(PROVING, "stranger", evidence) is PROVING
        assert _answer(PROVING, "stranger", Evidence(unknown=(LOST,))) is PROVING

    def test_an_invalid_receipt_is_no_answer(self) -> None:
        """The leader has to ask its agents."""
        assert _answer(PROVING, A, examine([None], Commits())) is PROVING

    def test_an_unknown_receipt_in_an_answer_means_lost_commits_whatever_its_epoch(self) -> None:
        later = replace(PROVING, epoch=5)
        recovering = _answer(later, A, Evidence(known=(KNOWN,), unknown=(LOST,)), asked=True)
        assert (recovering.stage, recovering.epoch, recovering.awaited) == (Stage.RECOVERING, 6, frozenset({A, B}))


class TestReceiptsOfCalls:
    def test_an_unknown_receipt_of_this_epoch_begins_a_recovery(self) -> None:
        recovering = PROVEN.receive(A, LOST, challenge="c")
        assert (recovering.stage, recovering.epoch, recovering.challenge) == (Stage.RECOVERING, 1, "c")

    def test_the_epoch_rises_above_that_of_the_receipt(self) -> None:
        assert PROVEN.receive(A, replace(LOST, epoch=7), challenge="c").epoch == 8

    def test_a_repeated_receipt_begins_no_second_recovery(self) -> None:
        recovering = PROVEN.receive(A, LOST, challenge="c")
        assert recovering.receive(B, LOST, challenge="d") is recovering
        proven = recovering.listed(A, "c").listed(B, "c")
        assert proven.receive(A, LOST, challenge="d") is proven

    def test_no_receipt_and_a_stranger_start_nothing(self) -> None:
        assert PROVEN.receive(A, None, challenge="c") is PROVEN
        assert PROVEN.receive("stranger", LOST, challenge="c") is PROVEN


class TestRecovery:
    def test_every_member_lists_after_the_challenge(self) -> None:
        assert RECOVERING.must_list(A)
        assert RECOVERING.listed(A, "earlier") is RECOVERING
        once = RECOVERING.listed(A, "declared")
        assert not once.must_list(A)
        assert not once.may_change(A)
        assert once.listed(B, "declared").may_change(A)

    def test_a_restart_begins_it_again(self) -> None:
        again = RECOVERING.listed(A, "declared").start("server-2", challenge="again")
        assert (again.stage, again.epoch, again.awaited) == (Stage.RECOVERING, 2, frozenset({A, B}))


class TestMembers:
    def test_a_member_is_awaited_before_its_first_call(self) -> None:
        started = PROVEN.join("cluster-c").start("server-2", challenge="c")
        assert "cluster-c" in started.awaited

    def test_a_new_member_is_not_awaited(self) -> None:
        assert PROVING.join("cluster-c").awaited == PROVING.awaited
        assert PROVEN.join(A) == PROVEN

    def test_an_excused_member_lists_when_it_returns_and_stops_no_other(self) -> None:
        once = _answer(PROVING, A, Evidence(known=(KNOWN,)))
        excused = once.excuse(B)
        assert excused.may_change(A)
        assert not excused.may_change(B)
        assert excused.must_list(B)
        assert excused.receive(B, LOST, challenge="c") is excused
        returned = excused.listed(B, "")
        assert returned.may_change(B)
        assert returned.members == BOTH

    def test_a_member_that_has_excused_itself_is_not_awaited_later(self) -> None:
        excused = PROVING.excuse(B).listed(A, "")
        assert excused.start("server-3", challenge="c").awaited == {A}

    def test_only_retire_ends_a_membership(self) -> None:
        retired = PROVING.retire(B)
        assert B not in retired.members
        assert retired.awaited == {A}
        assert _answer(retired, A, Evidence(known=(KNOWN,))).stage is Stage.PROVEN
        assert B in PROVING.excuse(B).members
