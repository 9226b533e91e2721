"""BatchQueue.asubmit: several event loops at once, cancellation, room, deadlines."""

import asyncio
import threading

import numpy as np
import pytest
from conftest import run_threads
from test_batch_queue import Gate, hold, row
from test_batch_queue_life import wait_until

import heddle


async def turn():
    """Lets the other tasks of the loop run once."""
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    loop.call_soon(over.set_result, None)
    await over


def test_several_event_loops_get_their_own_results_in_the_loop_that_asked():
    with heddle.BatchQueue(lambda x: x * 2, max_batch=64) as q:

        def body(thread):
            async def one(i):
                loop = asyncio.get_running_loop()
                ident = threading.get_ident()
                for j in range(10):
                    value = thread * 10_000 + i * 100 + j
                    assert np.array_equal(await q.asubmit(row(value)), row(value * 2))
                    assert asyncio.get_running_loop() is loop
                    assert threading.get_ident() == ident
                return 10

            async def all_of_them():
                return sum(await asyncio.gather(*(one(i) for i in range(25))))

            return asyncio.run(all_of_them())

        assert run_threads(4, body) == [250] * 4
        assert q.metrics().rows == 1000
        assert q.metrics().batches < 1000


def test_a_cancelled_task_withdraws_its_request():
    gate = Gate()
    with heddle.BatchQueue(gate) as q:
        hold(gate, q)

        async def main():
            task = asyncio.create_task(q.asubmit(row(1)))
            other = asyncio.create_task(q.asubmit(row(2)))
            await turn()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert q.metrics().cancelled == 1
            gate.open.set()
            return await other

        assert asyncio.run(main())[0, 0] == 4
        assert all(1 not in batch for batch in gate.batches)


def test_a_full_queue_is_awaited_and_the_loop_goes_on():
    gate = Gate()
    with heddle.BatchQueue(gate, capacity=2, max_batch=1) as q:
        hold(gate, q)

        async def main():
            tasks = [asyncio.create_task(q.asubmit(row(i))) for i in range(10)]
            for _ in range(5):
                await turn()  # the loop is not blocked
            assert q.metrics().depth == 2
            gate.open.set()
            return [int(y[0, 0]) for y in await asyncio.gather(*tasks)]

        assert asyncio.run(main()) == [2 * i for i in range(10)]


@pytest.mark.parametrize("options", [{"when_full": "fail"}, {"full_wait": 0.05}])
def test_the_await_for_room_has_a_bound(options):
    gate = Gate()
    with heddle.BatchQueue(gate, capacity=1, **options) as q:
        hold(gate, q)
        q.submit(row(1))
        with pytest.raises(heddle.ExhaustedError):
            asyncio.run(q.asubmit(row(2)))
        gate.open.set()


def test_an_await_for_room_that_a_hung_worker_ended_goes_on_when_the_worker_is_back():
    gate = Gate()
    with heddle.BatchQueue(gate, capacity=1, max_batch=1, hang_after=1.0) as q:
        hung = hold(gate, q)

        async def main():
            q.submit(row(1))
            task = asyncio.create_task(q.asubmit(row(2)))
            await turn()
            # The loop stands still: it hears that there is no room when others have it again.
            assert isinstance(hung.exception(30), heddle.UnavailableError)
            gate.open.set()
            wait_until(lambda: q.health().status == "ok")
            hold(gate, q)
            q.submit(row(3))
            for _ in range(5):
                await turn()
            assert not task.done()
            gate.open.set()
            return await asyncio.wait_for(task, 30)

        assert asyncio.run(main())[0, 0] == 4


def test_errors_and_deadlines_reach_the_awaiting_task():
    def call(x):
        raise ValueError("no")

    with heddle.BatchQueue(call) as q, pytest.raises(ValueError, match="no"):
        asyncio.run(q.asubmit(row(1)))
    gate = Gate()
    with heddle.BatchQueue(gate) as q:
        hold(gate, q)
        with pytest.raises(heddle.DeadlineError):
            asyncio.run(q.asubmit(row(1), timeout=0.02))
        gate.open.set()


def test_a_loop_that_is_closed_before_its_answer_disturbs_nobody():
    gate = Gate()
    with heddle.BatchQueue(gate) as q:
        hold(gate, q)
        loop = asyncio.new_event_loop()
        task = loop.create_task(q.asubmit(row(1)))
        loop.run_until_complete(turn())
        other = q.submit(row(2))
        loop.close()
        gate.open.set()
        assert other.result(30)[0, 0] == 4
        task._log_destroy_pending = False


def test_oversized_requests_are_joined_for_tasks_too():
    x = np.arange(100, dtype=np.float32).reshape(50, 2)
    with heddle.BatchQueue(lambda x: x + 1, max_batch=8) as q:
        assert np.array_equal(asyncio.run(q.asubmit(x)), x + 1)


def test_threads_and_tasks_wait_for_room_in_one_line():
    gate = Gate()
    with heddle.BatchQueue(gate, capacity=1, max_batch=1) as q:
        hold(gate, q)
        q.submit(row(0))

        async def main():
            tasks = [asyncio.create_task(q.asubmit(row(1)))]
            await turn()
            thread = threading.Thread(target=lambda: q.submit(row(2)).result(30))
            thread.start()
            tasks.append(asyncio.create_task(q.asubmit(row(3))))
            await turn()
            gave_up = asyncio.create_task(q.asubmit(row(4)))
            await turn()
            gave_up.cancel()
            gate.open.set()
            answers = [int(y[0, 0]) for y in await asyncio.gather(*tasks)]
            thread.join()
            return answers

        assert asyncio.run(main()) == [2, 6]
    order = [int(batch[0, 0]) for batch in gate.batches]
    assert order[:3] == [-1, 0, 1]
    assert sorted(order[3:]) == [2, 3]
