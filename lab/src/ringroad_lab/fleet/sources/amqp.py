"""An AMQP 0-9-1 broker as a source: messages in fedora-messaging's wire format, as Fedora and CentOS Stream send them.

The format: https://fedora-messaging.readthedocs.io/en/stable/api/wire-format.html.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Literal, Self

from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractQueue
from pydantic import Field, model_validator

from ringroad_lab.amqp_broker import Broker, BrokerError, BrokerSettings
from ringroad_lab.errors import StoreError
from ringroad_lab.fleet.intake import keep_dead, receive
from ringroad_lab.fleet.sources.interface import Intake, Source, Watcher
from ringroad_lab.fleet.sources.own_thread import OwnThreadWatcher, Patience
from ringroad_lab.request.message import MAX_PAYLOAD_BYTES, Message
from ringroad_lab.text_types import Name, Word

# Part of an oversized message that is kept.
_KEPT_BYTES = 1 << 16
# Interval of checks that the broker still has us as a consumer: a queue can hang while its broker seems well.
_CHECK_EVERY_S = 30.0


class AmqpSource(Source, BrokerSettings):
    """A queue and its bindings."""

    title = "An AMQP 0-9-1 broker, with messages in the format of fedora-messaging"

    queue: Word = ""
    queue_type: Literal["quorum", "classic", "temporary", "existing"] = "quorum"
    """quorum, classic: our own durable queue. temporary: deleted with the connection. existing: made and bound by others."""
    exchange: Annotated[Word, Field(min_length=1)] = "amq.topic"
    topics: Annotated[tuple[Annotated[Word, Field(min_length=1)], ...], Field(max_length=100)] = ()
    """Topics of the messages to receive from the exchange; `*` stands for a word, `#` for any number of words."""
    prefetch: Annotated[int, Field(ge=1, le=1000)] = 4
    """Maximum number of messages in memory; the broker limits their length."""
    kept_as: Annotated[Name | None, Field(alias="as")] = None
    """Source name under which its requests are kept; its own name if not given."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.queue and self.queue_type != "temporary":
            raise ValueError('set queue, or queue_type = "temporary"')
        if bool(self.topics) is (self.queue_type == "existing"):
            raise ValueError("set topics, except for an existing queue, which others have bound")
        return self

    def watcher(self, name: str, intake: Intake) -> Watcher:
        """Return the watcher that takes the messages.

        Raises:
            ScenarioError: the URL or a certificate is missing or invalid.
        """
        return AmqpWatcher(name, self, intake)


class AmqpWatcher(OwnThreadWatcher[AmqpSource]):
    """Takes messages as they arrive, and acknowledges each when its result is stored."""

    def __init__(self, name: str, source: AmqpSource, intake: Intake, patience: Patience | None = None) -> None:
        """Take the source's name and settings, and the intake of its messages.

        Raises:
            ScenarioError: the URL or a certificate is missing or invalid.
        """
        super().__init__(name, source, intake, patience)
        self._broker = Broker.of(source, f"source '{name}'")
        self._runner: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None

    def work(self) -> float:
        """Take messages until something fails, or the watcher is stopped."""
        asyncio.run(self._consume())
        return 0.0

    def interrupt(self) -> None:
        """Make `work` return."""
        if runner := self._runner:
            loop, ended = runner
            try:
                loop.call_soon_threadsafe(_end, ended)
            except RuntimeError:
                # `work` has returned already.
                return

    async def _consume(self) -> None:
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._runner = asyncio.get_running_loop(), ended
        answer_s = self.patience.answer_s
        async with self._broker.connected(answer_s) as connection:
            async with asyncio.timeout(answer_s):
                channel = await connection.channel(publisher_confirms=False)
                await channel.set_qos(prefetch_count=self.source.prefetch)
                queue = await self._declare(channel)
                for topic in self.source.topics:
                    await queue.bind(self.source.exchange, topic)
                in_turn = asyncio.Lock()

                async def take(message: AbstractIncomingMessage) -> None:
                    async with in_turn:
                        if ended.done():
                            return
                        try:
                            self._take(message)
                            await message.ack()
                        except Exception as error:
                            # The message is not acknowledged: the broker sends it again.
                            _end(ended, error)

                channel.close_callbacks.add(lambda _channel, error: _end(ended, error or BrokerError("the broker closed the channel")))
                await queue.consume(take)
            self.works_again()
            while not self.stopping.is_set():
                await asyncio.wait({ended}, timeout=_CHECK_EVERY_S)
                if ended.done():
                    return ended.result()
                async with asyncio.timeout(answer_s):
                    if not await self._is_known(channel, queue):
                        raise BrokerError(f"{self._broker.name} no longer has us as a consumer of the queue {queue.name}")
        return None

    async def _declare(self, channel: AbstractChannel) -> AbstractQueue:
        name = self.source.queue or None
        match self.source.queue_type:
            case "quorum":
                return await channel.declare_queue(name, durable=True, arguments={"x-queue-type": "quorum"})
            case "classic":
                return await channel.declare_queue(name, durable=True)
            case "temporary":
                return await channel.declare_queue(name, exclusive=True, auto_delete=True)
        return await channel.declare_queue(name, passive=True)

    async def _is_known(self, channel: AbstractChannel, queue: AbstractQueue) -> bool:
        """Return whether the broker has us as a consumer of the queue; a queue that hangs has no consumers."""
        answer = await (await channel.get_underlay_channel()).queue_declare(queue.name, passive=True)
        return bool(answer.consumer_count)

    def _take(self, message: AbstractIncomingMessage) -> None:
        """Process a message; the result is stored when this returns.

        Raises:
            StoreError: the result is not stored.
        """
        body, now = message.body, self.intake.clock()
        name = self.source.kept_as or self.name
        kept = Message(name, body, _sent_at(message, now), message.routing_key or "", message.message_id or "")
        if len(body) > MAX_PAYLOAD_BYTES:
            cut = Message(name, body[:_KEPT_BYTES], now, kept.event, kept.delivery)
            reason = f"the message has {len(body)} bytes, more than {MAX_PAYLOAD_BYTES}: the first {_KEPT_BYTES} are kept"
            received = keep_dead(self.intake.requests, cut, reason, is_json=False)
        else:
            try:
                received = receive(self.intake.requests, self.intake.rules, kept)
            except StoreError:
                raise
            except Exception as error:
                # The message would fail again at the next delivery.
                reason = f"the laboratory failed to process the message: {type(error).__name__}: {error}"
                received = keep_dead(self.intake.requests, kept, reason, is_json=False)
        self.report(received, f"message {kept.delivery}")


def _end(ended: asyncio.Future[None], error: BaseException | None = None) -> None:
    if ended.done():
        return
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)


def _sent_at(message: AbstractIncomingMessage, now: float) -> float:
    """Return the sending time that a message states, at most now: the order of arrival is not the order of builds."""
    try:
        moment = datetime.fromisoformat(str(message.headers["sent-at"]))
        return min((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp(), now)
    except (KeyError, TypeError, ValueError, OverflowError):
        return now
