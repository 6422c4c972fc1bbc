"""The steps of the continuity model: what clusters, ledger replicas and faults can do next, on the real rules.

Two clusters want the one address of a network, each through a ledger replica of its own. A cluster is a leader, perhaps
a paused former leader, a Lease, one NodeNetworkConfig (NNC) with a resourceVersion, and an agent with a journal. A loss
removes the database's last commits and begins another life of its server. Messages are lost, repeated and late.

A mutant omits one rule, or adds one that earlier drafts had.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from podpool.ledger.domain.continuity import Continuity, Evidence, Stage, examine
from podpool.ledger.domain.members import Members
from podpool.ledger.domain.receipts import Receipt
from tests.ledger.continuity_world import (
    CLUSTERS,
    DATABASES,
    FREE,
    Cluster,
    Database,
    Late,
    Leader,
    Setup,
    State,
    World,
    later,
    number_of,
    sign,
    sign_state,
    verify,
    verify_state,
    with_cluster,
    with_state,
)


class Broken(Exception):
    """A rule is broken."""


Step = tuple[str, World]


class Model:
    """The steps of a world under the rules, less the one that a mutant omits."""

    def __init__(self, setup: Setup, mutant: str = "") -> None:
        self.setup = setup
        self._mutant = mutant

    def initial(self) -> World:
        """Return the world before the first call: tokens were created, nothing else."""
        members = Members() if self._is("members from their first call") else Members(frozenset("01"))
        server = None if self.setup.upgrade else "0"
        continuity = Continuity(server=server, members=members)
        world = World(left=self.setup.budget, past=(number_of(Database(continuity)),), key_made=not self.setup.upgrade)
        world = self._connect(world)
        for name in self.setup.begin:
            world = dict(self.steps(world))[name]
        return world

    def steps(self, world: World) -> Iterator[Step]:
        """Return everything that can happen next."""
        for index in CLUSTERS:
            yield from self._cluster_steps(world, index)
        yield from self._faults(world)
        if world.late:
            yield f"late {world.late.kind} of {world.late.cluster}", self._deliver(world, world.late)

    def check(self, world: World) -> None:
        """Raise if a rule is broken."""
        if all(each.uses for each in world.clusters) and not (world.excused or world.reported):
            raise Broken("two owners")
        if world.db.continuity.epoch > world.deserved:
            raise Broken("a recovery although nothing was lost")

    def granting(self, world: World) -> bool:
        """Whether the network grants again."""
        continuity = world.db.continuity
        return continuity.stage is Stage.PROVEN and continuity.server == str(world.life)

    # A cluster

    def _cluster_steps(self, world: World, index: int) -> Iterator[Step]:
        cluster, left = world.clusters[index], world.left
        leader, name = cluster.leader, str(index)
        db, stage = world.db, world.db.continuity.stage
        yield f"{name} calls", self._call(world, index, leader, respond=True)
        if leader.term == 0:
            yield f"{name} opens a term", self._call(world, index, leader, respond=True, only_open=True)
        if leader.unpublished:
            yield f"{name} publishes", self._publish(world, index, leader)
        if leader.receipt and cluster.lease != leader.receipt:
            yield f"{name} renews its Lease", with_cluster(world, index, cluster._replace(lease=leader.receipt))
        if db.key == world.key and db.continuity.must_list(name):
            yield f"{name} lists", self._list(world, index)
        served = db.key == world.key and left.commits > 0
        if served and stage is Stage.PROVING and name in db.continuity.awaited:
            yield from self._answers(world, index)
        if left.releases and cluster.uses:
            spent = world._replace(left=left._replace(releases=left.releases - 1))
            yield f"agent of {name} releases", with_cluster(spent, index, cluster._replace(released=True))
        if index in self.setup.faulty:
            yield from self._cluster_faults(world, index)

    def _cluster_faults(self, world: World, index: int) -> Iterator[Step]:
        cluster, left = world.clusters[index], world.left
        leader, name = cluster.leader, str(index)
        if left.lost_responses:
            spent = world._replace(left=left._replace(lost_responses=left.lost_responses - 1))
            yield f"{name} calls, the response is lost", self._call(spent, index, leader, respond=False)
        if left.late and leader.term:
            yield f"{name} sends a late call", later(world, Late(index, "call", leader))
        former = cluster.former
        if former and former.unpublished:
            yield f"former leader of {name} publishes", self._publish(world, index, former)
        if left.elections and leader.term:
            elected = cluster._replace(leader=Leader(seen_rv=cluster.rv), former=leader)
            spent = world._replace(left=left._replace(elections=left.elections - 1))
            yield f"{name} elects", with_cluster(spent, index, elected)
        if left.api_restores and cluster.rv:
            emptied = cluster._replace(nnc=State(), lease=None, rv=cluster.rv + 100)
            spent = world._replace(left=left._replace(api_restores=left.api_restores - 1))
            yield f"API server of {name} is restored", with_cluster(spent, index, emptied)

    def _answers(self, world: World, index: int) -> Iterator[Step]:
        cluster, challenge = world.clusters[index], world.db.continuity.challenge
        leader, late = cluster.leader, world.left.late and index in self.setup.faulty
        own = leader.receipt or (cluster.lease if self._is("a new leader answers with its Lease") else None)
        if own:
            message = Late(index, "answer", leader, challenge, (own,))
            yield f"{index} answers", self._deliver(world, message)
            if late:
                yield f"{index} sends a late answer", later(world, message)
        if not own or verify(world.key, own) is None:  # a receipt does not count once another key signs
            asked, receipts = self._ask(cluster, challenge, leader)
            message = Late(index, "answer of agents", leader, challenge, receipts)
            after = with_cluster(world, index, asked)
            yield f"{index} answers with its agents", self._deliver(after, message)
            if late:
                yield f"{index} sends a late answer of its agents", later(after, message)
        former = cluster.former
        if former and former.receipt and self._is("a former leader answers"):
            message = Late(index, "answer", former, challenge, (former.receipt,))
            yield f"former leader of {index} answers", self._deliver(world, message)

    def _ask(self, cluster: Cluster, challenge: str, leader: Leader) -> tuple[Cluster, tuple[str | None, ...]]:
        """Write the challenge into the NNC, and return what its agent replies."""
        if cluster.answer[0] == challenge:
            return cluster, cluster.answer[1]
        journal = State() if self._is("agents are not asked") else cluster.journal
        receipts = (cluster.lease, cluster.nnc.signed, journal.signed)
        written = 0 if self._is("the challenge is not written to NNCs") else 1
        asked = cluster._replace(rv=cluster.rv + written, leader=leader._replace(seen_rv=cluster.rv + written))
        if self._is("challenges are counted"):
            asked = asked._replace(answer=(challenge, receipts))
        return asked, receipts

    def _publish(self, world: World, index: int, leader: Leader) -> World:
        """Patch the NNC, unless it was written since the leader has read it; the agent accepts a newer state."""
        cluster, state = world.clusters[index], leader.unpublished
        if state is None:
            return world
        done = leader._replace(unpublished=None, seen_rv=cluster.rv + 1)
        is_leader = cluster.leader is leader
        after = cluster._replace(leader=done) if is_leader else cluster._replace(former=None)
        if leader.seen_rv == cluster.rv:
            newer = state.version > cluster.journal.version
            after = after._replace(nnc=state, rv=cluster.rv + 1)
            if newer:
                after = after._replace(
                    journal=state, released=cluster.released and state.grant == cluster.journal.grant
                )
        return with_cluster(world, index, after)

    # The ledger

    def _connect(self, world: World) -> World:
        """Both replicas connect to a new life of the server."""
        for index in CLUSTERS:
            db = world.db
            if db.key != world.key:
                return world
            after = self._start(world, index, db.continuity)
            world = world._replace(key_made=True)
            if after != db.continuity:
                world = self._committed(world, index, db, after)[1]
        return world

    def _start(self, world: World, index: int, before: Continuity) -> Continuity:
        server, incarnation = str(world.life), world.db.commits.incarnation
        first = not world.key_made or self._is("a migration always counts as the first")
        continuous = self._is_recorded(world)
        if self._is("an own commit token proves") and incarnation:
            continuous = continuous or int(incarnation[:8], 16) == index
        after = before.start(server, challenge=self._challenge("s", world), continuous=continuous, first=first)
        if self._is("a recovery goes on after a restart") and before.stage is Stage.RECOVERING:
            after = replace(before, server=server)
        if self._is("one answer is enough") and after.stage is Stage.PROVING != before.stage:
            after = replace(after, awaited=frozenset(min(after.awaited)))
        if self._is("nothing is asked") and after.stage is Stage.PROVING:
            after = replace(after, stage=Stage.PROVEN, awaited=frozenset())
        return after

    def _is_recorded(self, world: World) -> bool:
        usable = not self.setup.one_volume or self._is("a record on the database's volume proves")
        recorded = world.record is not None and world.db.commits.contain(world.record)
        return self.setup.sqlite and usable and recorded

    def _challenge(self, kind: str, world: World) -> str:
        epoch = world.db.continuity.epoch
        return f"{kind}{epoch}" if self._is("challenges are counted") else f"{kind}{world.life}.{epoch}"

    def _committed(self, world: World, index: int, db: Database, continuity: Continuity) -> tuple[Database, World]:
        """Commit; a recovery ends every term, and decides the claims when all are in."""
        before = db.continuity
        life = 0 if self._is("a writer keeps its incarnation") else world.life
        db = db._replace(continuity=continuity, commits=db.commits.commit(f"{index:08x}{life:08x}"))
        if continuity.stage is Stage.RECOVERING and continuity.challenge != before.challenge:
            db = db._replace(terms=(db.terms[0] + 1, db.terms[1] + 1), listed=(None, None))
        if before.stage is Stage.RECOVERING and continuity.stage is Stage.PROVEN:
            db, world = self._decide(db, world)
        left = world.left._replace(commits=world.left.commits - 1)
        last = Receipt(continuity.epoch, db.commits.incarnation, db.commits.revision)
        depth = world.past if left.losses else ()
        return db, world._replace(past=(*depth, number_of(db)), left=left, record=last if self.setup.sqlite else None)

    def _decide(self, db: Database, world: World) -> tuple[Database, World]:
        """Make the inventories the database; an excused cluster keeps what the database has."""
        claims = {index: grant for index in CLUSTERS if (grant := db.listed[index])}
        if db.owner != FREE and db.listed[db.owner] is None:
            claims[db.owner] = db.grant
        owner = min(claims, default=FREE)
        db = db._replace(owner=owner, grant=claims.get(owner, 0), listed=(None, None))
        for index in CLUSTERS:
            db = with_state(db, index, self._next_state(db, index))
        return db, world._replace(reported=world.reported or len(claims) > 1)

    def _next_state(self, db: Database, index: int) -> State:
        version = db.states[index].version + 1
        commit = Receipt(db.continuity.epoch, db.commits.incarnation, db.commits.revision)
        grant = db.grant if db.owner == index else 0
        return State(version, grant, sign_state(db.key, index, commit, version, grant))

    def _call(self, world: World, index: int, leader: Leader, *, respond: bool, only_open: bool = False) -> World:
        """Process a leader's call: its term, or a release, or a grant."""
        db, cluster, name = world.db, world.clusters[index], str(index)
        if db.key != world.key or world.left.commits <= 0:
            return world
        after = self._received(world, index, leader.receipt or cluster.lease)
        if after != db.continuity:
            return self._committed(world, index, db, after)[1]
        if not self._may_change(db, name):
            return self._unproven(world, index, leader, respond=respond)
        world = world._replace(excused=world.excused - {index})
        if leader.term == 0:
            terms = (db.terms[0] + 1, db.terms[1]) if index == 0 else (db.terms[0], db.terms[1] + 1)
            leader = leader._replace(term=terms[index])
            db, world = self._committed(world, index, db._replace(terms=terms), db.continuity.join(name))
        elif leader.term != db.terms[index]:
            return with_cluster(world, index, cluster._replace(leader=Leader(seen_rv=cluster.rv))) if respond else world
        if not only_open:
            db, world = self._reconciled(world, index, db)
        return self._responded(world, index, leader, db) if respond else world

    def _may_change(self, db: Database, name: str) -> bool:
        if db.continuity.may_change(name):
            return True
        first = self._is("members from their first call") and name not in db.continuity.members
        return db.continuity.stage is Stage.PROVEN and (first or self._is("an excused member is served"))

    def _reconciled(self, world: World, index: int, db: Database) -> tuple[Database, World]:
        cluster = world.clusters[index]
        if db.owner == index and cluster.released and cluster.journal.grant == db.grant:
            db = db._replace(owner=FREE, grant=0)
        elif db.owner == FREE and not cluster.released:
            db = db._replace(owner=index, grant=db.states[index].version + 1)
        else:
            return db, world
        db, world = self._committed(world, index, db, db.continuity)
        db = with_state(db, index, self._next_state(db, index))
        return db, world._replace(past=(*world.past[:-1], number_of(db)))

    def _responded(self, world: World, index: int, leader: Leader, db: Database) -> World:
        """The leader gets a response: a receipt, and the state to publish."""
        cluster, state = world.clusters[index], db.states[index]
        publish = state if state != cluster.nnc and state.version else None
        after = leader._replace(receipt=self._receipt(db), unpublished=publish, seen_rv=cluster.rv)
        return with_cluster(world, index, cluster._replace(leader=after))

    def _unproven(self, world: World, index: int, leader: Leader, *, respond: bool) -> World:
        cluster = world.clusters[index]
        if not respond:
            return world
        if self._is("an unproven network issues receipts") and world.db.continuity.stage is Stage.PROVING:
            return with_cluster(world, index, cluster._replace(leader=leader._replace(receipt=self._receipt(world.db))))
        if leader.receipt and self._is("any known receipt is an answer") and leader.term == world.db.terms[index]:
            return self._deliver(world, Late(index, "answer", leader, world.db.continuity.challenge, (leader.receipt,)))
        return world

    def _received(self, world: World, index: int, sent: str | None) -> Continuity:
        db = world.db
        receipt = verify(db.key, sent)
        unknown = receipt if receipt and not db.commits.contain(receipt) else None
        if unknown and self._is("a receipt of an earlier epoch is evidence"):
            unknown = replace(unknown, epoch=max(unknown.epoch, db.continuity.epoch))
        return db.continuity.receive(str(index), unknown, challenge=self._challenge("r", world))

    def _deliver(self, world: World, message: Late) -> World:
        """A message arrives; a late one is not answered, and may arrive again."""
        index = message.cluster
        db = world.db
        if db.key != world.key or world.left.commits <= 0:
            return world
        if message.kind == "call":
            return self._late_call(world, message)
        evidence = self._examine(db, index, message.receipts)
        answered = message.answered
        if self._is("a late answer counts"):
            answered = db.continuity.challenge
        asked = message.kind == "answer of agents"
        challenge = self._challenge("r", world)
        if self._is("an answer of an earlier epoch is no evidence"):
            unknown = tuple(each for each in evidence.unknown if each.epoch >= db.continuity.epoch)
            evidence = replace(evidence, unknown=unknown)
        after = db.continuity.answer(str(index), answered, evidence, agents_asked=asked, challenge=challenge)
        return world if after == db.continuity else self._committed(world, index, db, after)[1]

    def _late_call(self, world: World, message: Late) -> World:
        world_after = self._call(world, message.cluster, message.leader, respond=False)
        if world_after == world and self._is("any known receipt is an answer"):
            db, leader = world.db, message.leader
            if leader.receipt and leader.term == db.terms[message.cluster]:
                answer = Late(message.cluster, "answer", leader, db.continuity.challenge, (leader.receipt,))
                return self._deliver(world, answer)
        return world_after

    def _examine(self, db: Database, index: int, receipts: tuple[str | None, ...]) -> Evidence:
        read = [verify(db.key, each) or verify_state(db.key, index, each) for each in receipts]
        return examine(read, db.commits)

    def _list(self, world: World, index: int) -> World:
        """A new term with an inventory: the newest of NNC and journal, less what the agent has released."""
        db, cluster, name = world.db, world.clusters[index], str(index)
        if world.left.commits <= 0:
            return world
        newest = max(cluster.nnc, cluster.journal, key=lambda state: state.version)
        claim = 0 if cluster.released else newest.grant
        recovering, excused = db.continuity.stage is Stage.RECOVERING, name in db.continuity.members.excused
        terms, listed = list(db.terms), list(db.listed)
        terms[index] += 1
        if not excused or recovering:
            listed[index] = claim
        db = db._replace(terms=(terms[0], terms[1]), listed=(listed[0], listed[1]))
        version = max(newest.version, db.states[index].version)
        db = with_state(db, index, db.states[index]._replace(version=version))
        after = db.continuity.listed(name, db.continuity.challenge)
        db, world = self._committed(world, index, db, after)
        if excused and not recovering:
            db, world = self._merge(world, index, db, claim)
        leader = Leader(term=db.terms[index], seen_rv=cluster.rv + 1)
        return with_cluster(world, index, cluster._replace(leader=leader, rv=cluster.rv + 1))

    def _merge(self, world: World, index: int, db: Database, claim: int) -> tuple[Database, World]:
        """Adopt an excused member's claim, or report that it is disputed."""
        if claim and db.owner not in (FREE, index):
            return db, world._replace(reported=True)
        owner = index if claim else FREE if db.owner == index else db.owner
        db = db._replace(owner=owner, grant=claim if owner == index else db.grant)
        db = with_state(db, index, self._next_state(db, index))
        return db, world._replace(past=(*world.past[:-1], number_of(db)), excused=world.excused - {index})

    def _receipt(self, db: Database) -> str:
        return sign(db.key, Receipt(db.continuity.epoch, db.commits.incarnation, db.commits.revision))

    # Faults

    def _faults(self, world: World) -> Iterator[Step]:
        left, db = world.left, world.db
        if left.losses and db.commits.revision:
            for count in range(1, len(world.past)):
                yield f"the last {count} commits are lost", self._lose(world, count)
        if left.restarts and db.commits.revision:
            yield "the server restarts", self._restart(world)
        if left.backups and left.losses and db.commits.revision and not world.backup:
            yield "a backup is made", world._replace(backup=world.past, left=left._replace(backups=left.backups - 1))
        if world.backup:
            yield "the backup is restored", self._restore(world)
        awaited = db.continuity.awaited if left.excuses and db.key == world.key else frozenset()
        for name in sorted(awaited):
            spent = world._replace(left=left._replace(excuses=left.excuses - 1), excused=world.excused | {int(name)})
            yield f"{name} is excused", self._committed(spent, 0, db, db.continuity.excuse(name))[1]
        if left.keys or db.key != world.key:
            yield "the key is replaced", self._replace_key(world)

    def _lose(self, world: World, count: int) -> World:
        past, left = world.past[:-count], world.left._replace(losses=world.left.losses - 1)
        lost = world._replace(past=past, life=world.life + 1, left=left, deserved=world.deserved + 1)
        if self.setup.one_volume:
            before = DATABASES[past[-1]]
            lost = lost._replace(
                record=Receipt(before.continuity.epoch, before.commits.incarnation, before.commits.revision)
            )
        if DATABASES[past[-1]].continuity.stage is Stage.RECOVERING:
            lost = lost._replace(deserved=lost.deserved + 1)
        return self._connect(lost)

    def _restart(self, world: World) -> World:
        left = world.left._replace(restarts=world.left.restarts - 1)
        deserved = world.deserved + (world.deserved > 0)  # NNCs may still show states that were lost before
        return self._connect(world._replace(life=world.life + 1, left=left, deserved=deserved))

    def _restore(self, world: World) -> World:
        return self._connect(
            world._replace(past=world.backup, backup=(), life=world.life + 1, deserved=world.deserved + 2)
        )

    def _replace_key(self, world: World) -> World:
        """`podpool ledger init` after the key was lost: the database gets another fingerprint."""
        db, key = world.db, world.key
        if db.key == world.key:
            key, world = key + 1, world._replace(left=world.left._replace(keys=world.left.keys - 1))
        continuity = db.continuity.declare_lost(self._challenge("k", world))
        if self._is("a key is replaced without a recovery"):
            continuity = db.continuity
        world = world._replace(key=key, deserved=world.deserved + 1)
        return self._connect(self._committed(world, 0, db._replace(key=key), continuity)[1])

    def _is(self, mutant: str) -> bool:
        return self._mutant == mutant
