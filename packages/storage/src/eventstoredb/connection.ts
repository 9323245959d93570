import { Client } from '@eventstore/db-client/dist/Client/index.js';
import operationsRpc from '@eventstore/db-client/generated/operations_grpc_pb.js';
import operations from '@eventstore/db-client/generated/operations_pb.js';
import shared from '@eventstore/db-client/generated/shared_pb.js';
import streamsRpc from '@eventstore/db-client/generated/streams_grpc_pb.js';
import streams from '@eventstore/db-client/generated/streams_pb.js';
import { Channel, type ClientDuplexStream, type ClientReadableStream, credentials } from '@grpc/grpc-js';
import { systemClocks } from '@epitaph/core/clock.ts';
import type { ConnectionTarget } from './connection-string.ts';
import type { WireEvent } from './event-coding.ts';
import { streamIdentifier } from './event-coding.ts';
import { faultOf, storageFaultOf } from './faults.ts';
import { pause } from '../patience.ts';

export type BatchCall = ClientDuplexStream<streams.BatchAppendReq, streams.BatchAppendResp>;
export type ReadCall = ClientReadableStream<streams.ReadResp>;

export interface CallListener<R> {
  onData(response: R): void;
  /**
   * Called when the call has ended, with its error, if any. It may be called twice for one call, with the error or without it first,
   * since gRPC reports an end as well as an error.
   */
  onEnd(error: unknown): void;
}

export interface ReadRequest {
  /** A stream, or all events except system events. */
  readonly from:
    | { readonly stream: string; readonly revision: number | 'start' | 'end' }
    | { readonly position: number | 'start' | 'end' };
  readonly direction: 'forwards' | 'backwards';
  readonly maxCount: number;
}

/** The longest pause between two attempts. It is also how long a server that is back may go unnoticed. */
const MAX_BACKOFF_MS = 1_000;
const MIN_BACKOFF_MS = 50;
/** Larger than any record the server can hold. */
const MAX_MESSAGE_BYTES = 17 * 1024 * 1024;

/**
 * One connection to an EventStoreDB or KurrentDB, over the official client.
 *
 * The client finds the nodes, follows the leader, and manages channel, credentials and TLS. Its functions for appending and reading
 * are not used, only the layer below: they leave promises pending or end the process if a connection breaks in the middle of a batch,
 * read without filter and deadline, and report a wrong revision for a conflict. See docs/adr/0010-eventstoredb.md.
 */
export class Connection extends Client {
  readonly #target: ConnectionTarget;
  /** For how long an idempotent call is repeated, in milliseconds. */
  readonly patienceMs: number;
  #closed = false;
  #channel: Channel | undefined;

  constructor(target: ConnectionTarget, patienceMs: number) {
    const [first] = target.nodes;
    const settings = { ...target.settings, defaultDeadline: target.deadlineMs };
    if (target.discover) super({ ...settings, discover: first! }, target.channel, target.credentials);
    else if (target.nodes.length > 1) {
      super({ ...settings, endpoints: [...target.nodes] }, target.channel, target.credentials);
    } else super({ ...settings, endpoint: first! }, target.channel, target.credentials);
    this.#target = target;
    this.patienceMs = patienceMs;
    const handleError = this.handleError;
    // The client does not await this. If its search for another node failed, that would be an unhandled rejection.
    this.handleError = async (client, error) => {
      try {
        await handleError(client, error);
      } catch {
        // The next call searches again, and reports the error.
      }
    };
    this.#useOwnChannels(target);
  }

  /**
   * Makes the channels here, with a short pause between attempts to connect. With the client's own channels, gRPC lets the pause grow
   * to two minutes, for all channels of the process; but a server that is back should be found at once.
   */
  #useOwnChannels(target: ConnectionTarget): void {
    const { channel, settings } = target;
    const secret =
      channel.insecure === true
        ? credentials.createInsecure()
        : credentials.createSsl(channel.rootCertificate, channel.userKeyFile, channel.userCertFile);
    const never = (ms: number) => (ms < 0 ? Number.MAX_VALUE : ms);
    const createChannel = async (): Promise<Channel> => {
      this.#channel = new Channel(await this.resolveUri(), secret, {
        'grpc.keepalive_time_ms': never(settings.keepAliveInterval),
        'grpc.keepalive_timeout_ms': never(settings.keepAliveTimeout),
        'grpc.max_receive_message_length': MAX_MESSAGE_BYTES,
        'grpc.initial_reconnect_backoff_ms': MIN_BACKOFF_MS,
        'grpc.max_reconnect_backoff_ms': MAX_BACKOFF_MS,
        'grpc.use_local_subchannel_pool': 1,
      });
      return this.#channel;
    };
    // The method is private in the client's types only.
    (this as unknown as { createChannel: () => Promise<Channel> }).createChannel = createChannel;
  }

  get nodes(): string {
    return this.#target.nodes.map(({ address, port }) => `${address}:${port}`).join(',');
  }

  /** The longest time that one call may take, in milliseconds. */
  get deadlineMs(): number {
    return this.#target.deadlineMs;
  }

  /** Opens a call for appends. Each append in it names its own stream. */
  openBatch(listener: CallListener<streams.BatchAppendResp>): Promise<BatchCall> {
    return this.#open('appends', listener, (client, ...options) => client.batchAppend(...options));
  }

  /** Opens a subscription to all events after a position. It must be the position of an event, or 0 for the start. */
  openSubscription(afterPosition: number, listener: CallListener<streams.ReadResp>): Promise<ReadCall> {
    const options = allOptions(afterPosition === 0 ? 'start' : afterPosition);
    options.setSubscription(new streams.ReadReq.Options.SubscriptionOptions());
    return this.#open('subscription', listener, (client, ...rest) => client.read(requestOf(options), ...rest));
  }

  /** Reads up to `maxCount` events or the end, and tries again while the server can't be reached. */
  read<T>(request: ReadRequest, take: (event: WireEvent) => T): Promise<T[]> {
    return this.patiently(() => this.#readOnce(request, take));
  }

  /** Makes an idempotent call, and repeats it after transient faults, until {@link patienceMs} has passed. */
  async patiently<T>(call: () => Promise<T>): Promise<T> {
    const untilMs = systemClocks.monotonicMs() + this.patienceMs;
    for (let pauseMs = MIN_BACKOFF_MS; ; pauseMs = Math.min(pauseMs * 2, MAX_BACKOFF_MS)) {
      try {
        return await call();
      } catch (error) {
        const fault = faultOf(error);
        if (fault.kind !== 'transient' || this.#closed || systemClocks.monotonicMs() + pauseMs > untilMs) {
          throw storageFaultOf(fault, error);
        }
        await pause(pauseMs);
      }
    }
  }

  async #readOnce<T>(request: ReadRequest, take: (event: WireEvent) => T): Promise<T[]> {
    const { from, direction, maxCount } = request;
    const options = 'stream' in from ? streamOptions(from.stream, from.revision) : allOptions(from.position);
    const { FORWARDS, BACKWARDS } = streams.ReadReq.Options.ReadDirection;
    options.setReadDirection(direction === 'forwards' ? FORWARDS : BACKWARDS);
    options.setCount(String(maxCount));
    const taken: T[] = [];
    const { promise, resolve, reject } = Promise.withResolvers<T[]>();
    await this.#open<ReadCall, streams.ReadResp>(
      'read',
      {
        onData: (response) => {
          const event = response.getEvent()?.getEvent();
          if (event === undefined || taken.length >= maxCount) return;
          try {
            taken.push(take(event));
          } catch (error) {
            reject(error);
          }
          // With a filter, the server continues to search for one event more than requested. The call is neither awaited nor cancelled:
          // servers take many cancelled calls for an attack, and close the connection.
          if (taken.length === maxCount) resolve(taken);
        },
        onEnd: (error) => (error === undefined ? resolve(taken) : reject(error)),
      },
      (client, metadata, callOptions) =>
        client.read(requestOf(options), metadata, { ...callOptions, deadline: this.createDeadline() }),
    );
    return promise;
  }

  /** Makes the server start a scavenge, which frees the space of truncated events. Returns the id of the scavenge. */
  startScavenge(): Promise<string> {
    const request = new operations.StartScavengeReq();
    const options = new operations.StartScavengeReq.Options();
    options.setThreadCount(1);
    options.setStartFromChunk(0);
    request.setOptions(options);
    // Repeating the call does no harm: a server that has started the scavenge answers that one is already running.
    return this.patiently(() =>
      this.execute(
        operationsRpc.OperationsClient,
        'scavenge',
        (client) =>
          new Promise((resolve, reject) => {
            client.startScavenge(request, ...this.callArguments({ requiresLeader: true }), (error, response) => {
              if (error !== null) {
                reject(error);
                return;
              }
              resolve(response.getScavengeId());
            });
          }),
      ),
    );
  }

  /** Ends all calls and closes the connection. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.dispose();
    this.#channel?.close();
  }

  async #open<T extends BatchCall | ReadCall, R>(
    name: string,
    listener: CallListener<R>,
    create: (
      client: InstanceType<typeof streamsRpc.StreamsClient>,
      ...options: ReturnType<Client['callArguments']>
    ) => T,
  ): Promise<T> {
    const open = this.GRPCStreamCreator(streamsRpc.StreamsClient, name, (client) => {
      const call = create(client, ...this.callArguments({ requiresLeader: true }, { deadline: Infinity }));
      // The listeners are added at once, since a call can fail before its opener runs again.
      call.on('data', (response: R) => listener.onData(response));
      call.on('error', (error) => listener.onEnd(error));
      call.on('end', () => listener.onEnd(undefined));
      return call;
    });
    return open();
  }
}

function requestOf(options: streams.ReadReq.Options): streams.ReadReq {
  const uuids = new streams.ReadReq.Options.UUIDOption();
  uuids.setString(new shared.Empty());
  options.setUuidOption(uuids);
  const request = new streams.ReadReq();
  request.setOptions(options);
  return request;
}

function streamOptions(stream: string, revision: number | 'start' | 'end'): streams.ReadReq.Options {
  const from = new streams.ReadReq.Options.StreamOptions();
  from.setStreamIdentifier(streamIdentifier(stream));
  if (revision === 'start') from.setStart(new shared.Empty());
  else if (revision === 'end') from.setEnd(new shared.Empty());
  else from.setRevision(String(revision));
  const options = new streams.ReadReq.Options();
  options.setStream(from);
  options.setNoFilter(new shared.Empty());
  return options;
}

function allOptions(position: number | 'start' | 'end'): streams.ReadReq.Options {
  const from = new streams.ReadReq.Options.AllOptions();
  if (position === 'start') from.setStart(new shared.Empty());
  else if (position === 'end') from.setEnd(new shared.Empty());
  else {
    const at = new streams.ReadReq.Options.Position();
    at.setCommitPosition(String(position));
    at.setPreparePosition(String(position));
    from.setPosition(at);
  }
  const notSystem = new streams.ReadReq.Options.FilterOptions.Expression();
  notSystem.setRegex('^[^$].*');
  const filter = new streams.ReadReq.Options.FilterOptions();
  filter.setEventType(notSystem);
  filter.setCount(new shared.Empty());
  filter.setCheckpointintervalmultiplier(1_000);
  const options = new streams.ReadReq.Options();
  options.setAll(from);
  options.setFilter(filter);
  return options;
}
