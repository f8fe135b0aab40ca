"""A hierarchical timing wheel: any number of timeouts, each added and cancelled in constant time.

It has no clock: `advance(now_ms)` makes time pass. A task fires exactly once, never before its deadline, in
order of deadlines (equal ones in order of adding), however far time jumps; a cancelled one never fires.

Level L has 256 slots of 256**L ms. A task lies at the level of the highest byte in which its deadline differs
from the wheel's own time, in the slot named by that byte of the deadline:

    time 0x01_20, deadline 0x01_45 -> level 0, slot 0x45      deadline 0x03_07 -> level 1, slot 0x03

So the slots in use at a level all lie ahead, every task of a lower level is due before any of a higher one,
and the next thing to do is the lowest bit of the first level in use. When time reaches a slot of level L > 0,
its tasks move to lower levels. A slot is a ring of tasks linked to each other: leaving it touches two others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

LEVELS = 8  # 64 bits of milliseconds: no deadline is too far
SLOTS_PER_LEVEL = 256
NEVER_MS = UNLIMITED = 1 << 64

# A pass that may fire n tasks may also move this many times n to lower levels: moving one costs less than
# a microsecond, firing one wakes a client.
MOVES_PER_TASK = 8


class TimerTask:
    """Something that happens at `deadline_ms`, unless cancelled before. Belongs to one Timer at a time."""

    __slots__ = ("_next", "_previous", "deadline_ms")

    deadline_ms: int  # set when added
    _previous: TimerTask | None  # None: in no slot
    _next: TimerTask  # there while in a slot

    def __init__(self) -> None:
        self._previous = None

    @property
    def is_pending(self) -> bool:
        return self._previous is not None

    def on_timeout(self) -> None:
        """The deadline has passed; the task is no longer in the wheel and may be added again."""
        raise NotImplementedError


class _Slot(TimerTask):
    """The fixed point of a ring of tasks; alone in it when the slot is empty."""

    __slots__ = ("bit", "level")

    def __init__(self, level: int, bit: int) -> None:
        self.level = level
        self.bit = bit
        self._previous = self
        self._next = self


class Timer:
    """Tasks by deadline. Not for several threads. `on_earlier` is called by `add`.

    A task may do anything to the timer from its `on_timeout`: add, cancel, even advance. If it raises, the
    exception leaves `advance`, that task is done, and all others stay where they are for the next call.
    """

    def __init__(self, start_ms: int, on_earlier: Callable[[int], None] | None = None) -> None:
        self._on_earlier = on_earlier
        self._now_ms = start_ms
        self._announced_ms = NEVER_MS
        self._count = 0
        self._slots: list[_Slot | None] = [None] * (LEVELS * SLOTS_PER_LEVEL)  # made when first used
        self._in_use = [0] * LEVELS  # one bit a slot, set while it holds a task
        self._due = _Slot(0, 0)  # to fire now
        self._moving = _Slot(0, 0)  # of a slot whose time came: to be placed anew before anything else

    def __len__(self) -> int:
        return self._count

    def add(self, task: TimerTask, deadline_ms: int) -> None:
        """Fire `task` when time reaches `deadline_ms`, from `advance`; a pending task is moved there.

        Calls `on_earlier(deadline_ms)` if that is before what `next_deadline_ms` last answered.
        """
        if task._previous is not None:
            self.cancel(task)
        self._place(task, deadline_ms)
        task.deadline_ms = deadline_ms
        self._count += 1
        if deadline_ms < self._announced_ms:
            self._announced_ms = deadline_ms
            if self._on_earlier is not None:
                self._on_earlier(deadline_ms)

    def cancel(self, task: TimerTask) -> bool:
        """Forget `task`; False if it was not pending."""
        previous = task._previous
        if previous is None:
            return False
        following = task._next
        previous._next = following
        following._previous = previous
        task._previous = None
        del task._next
        self._count -= 1
        if previous is following:
            self._clear(previous)
        return True

    def next_deadline_ms(self) -> int | None:
        """The time to call `advance` next, not later than the first deadline; None if nothing is pending."""
        if self._due._next is not self._due or self._moving._next is not self._moving:
            self._announced_ms = self._now_ms
            return self._now_ms
        first = self._first_in_use()
        if first is None:
            self._announced_ms = NEVER_MS
            return None
        self._announced_ms = first[0]
        return first[0]

    # -- for those who look ----------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """The wheel's own time: that of the last `advance`, or of the slot that it handles."""
        return self._now_ms

    def lit_slots(self, level: int) -> Iterator[tuple[int, Iterator[TimerTask]]]:
        """Iterate over the slots of a level that hold tasks, in the order of their deadlines, with the tasks of each.

        Nothing may change in the timer meanwhile.
        """
        in_use = self._in_use[level]
        while in_use:
            bit = in_use & -in_use
            in_use ^= bit
            index = bit.bit_length() - 1
            slot = self._slots[level << 8 | index]
            assert slot is not None
            yield index, _tasks_of(slot)

    def advance(self, now_ms: int, max_tasks: int | None = None) -> int:
        """Make it `now_ms`; fire what is due, at most `max_tasks`; return how many fired.

        What is left fires at the next call; until then `next_deadline_ms` is not in the future. Without a
        limit, as many fire as were pending at the start: tasks that add tasks due at once cannot hold a pass
        for ever. A time in the past is no change of time: it fires what was left.
        """
        tasks_left = self._count if max_tasks is None else max_tasks
        moves_left = UNLIMITED if max_tasks is None else max_tasks * MOVES_PER_TASK
        fired = 0
        while True:
            moves_left = self._move(moves_left)
            if self._moving._next is not self._moving:
                return fired
            while (task := self._due._next) is not self._due:
                if fired >= tasks_left:
                    return fired
                self.cancel(task)
                fired += 1
                task.on_timeout()
            if not self._step(now_ms):
                return fired

    def _place(self, task: TimerTask, deadline_ms: int) -> None:
        """Link `task` into the slot of its deadline."""
        slot: _Slot | None
        now_ms = self._now_ms
        if deadline_ms <= now_ms:
            slot = self._due
        else:
            level = ((deadline_ms ^ now_ms).bit_length() - 1) >> 3
            index = (level << 8) | (deadline_ms >> (level << 3)) & 255
            slot = self._slots[index]
            if slot is None:
                slot = self._slots[index] = _Slot(level, 1 << (index & 255))
            if slot._next is slot:
                self._in_use[level] |= slot.bit
        last = slot._previous
        assert last is not None
        task._previous = last
        task._next = slot
        last._next = slot._previous = task

    def _clear(self, slot: TimerTask) -> None:
        """Note that `slot` has become empty."""
        assert isinstance(slot, _Slot)
        self._in_use[slot.level] &= ~slot.bit

    def _first_in_use(self) -> tuple[int, int] | None:
        """The time of the first slot in use, and its level."""
        for level, in_use in enumerate(self._in_use):
            if in_use:
                first = (in_use & -in_use).bit_length() - 1
                shift = level << 3
                return (self._now_ms >> shift + 8 << 8 | first) << shift, level
        return None

    def _step(self, now_ms: int) -> bool:
        """Let time pass up to the next slot in use, or to `now_ms`; False if that is where it stands now."""
        if self._moving._next is not self._moving:
            return True  # a task advanced the timer itself, and did not get through
        first = self._first_in_use()
        if first is None or first[0] > now_ms:
            self._now_ms = max(self._now_ms, now_ms)
            return False
        self._now_ms, level = first
        slot = self._slots[level << 8 | (self._now_ms >> (level << 3)) & 255]
        assert slot is not None
        self._hand_over(slot, self._moving if level else self._due)
        return True

    def _hand_over(self, slot: _Slot, to: _Slot) -> None:
        """Give the ring of `slot` to `to`, which is empty."""
        first, last = slot._next, slot._previous
        assert last is not None
        to._next, to._previous = first, last
        first._previous = last._next = to
        slot._next = slot._previous = slot
        self._clear(slot)

    def _move(self, moves_left: int) -> int:
        """Place the moving tasks anew, at most `moves_left`; return how many moves remain."""
        moving = self._moving
        while moves_left > 0 and (task := moving._next) is not moving:
            moving._next = task._next
            task._next._previous = moving
            self._place(task, task.deadline_ms)
            moves_left -= 1
        return moves_left


def _tasks_of(slot: _Slot) -> Iterator[TimerTask]:
    """Iterate over the ring of a slot, in the order of adding."""
    task = slot._next
    while task is not slot:
        yield task
        task = task._next
