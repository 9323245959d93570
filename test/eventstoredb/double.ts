import gossipRpc from '@eventstore/db-client/generated/gossip_grpc_pb.js';
import gossip from '@eventstore/db-client/generated/gossip_pb.js';
import operationsRpc from '@eventstore/db-client/generated/operations_grpc_pb.js';
import operations from '@eventstore/db-client/generated/operations_pb.js';
import shared from '@eventstore/db-client/generated/shared_pb.js';
import googleStatus from '@eventstore/db-client/generated/status_pb.js';
import streamsRpc from '@eventstore/db-client/generated/streams_grpc_pb.js';
import streams from '@eventstore/db-client/generated/streams_pb.js';
import {
  Metadata,
  Server,
  ServerCredentials,
  type ServerDuplexStream,
  type ServerUnaryCall,
  type ServerWritableStream,
  type ServiceError,
  status,
} from '@grpc/grpc-js';
import any from 'google-protobuf/google/protobuf/any_pb.js';
import { DoubleLog, type DoubleRecord, InvalidPosition, StreamDeleted } from './double-log.ts';

type Duplex = ServerDuplexStream<streams.BatchAppendReq, streams.BatchAppendResp>;
type Readable = ServerWritableStream<streams.ReadReq, streams.ReadResp>;

/** Called for each append: before it is in the log, and after that, before it is answered. */
export type AppendHook = (moment: 'before' | 'after', stream: string) => Promise<void> | void;

export interface DoubleOptions {
  readonly maxAppendBytes?: number;
  /** If set, every call must carry these credentials. */
  readonly credentials?: { readonly user: string; readonly password: string };
  readonly tls?: { readonly key: Buffer; readonly certificate: Buffer };
}

/**
 * A stand-in for one EventStoreDB node, over real gRPC, with as much of it as the store calls: reading and subscribing,
 * batch append, gossip, scavenge. It is written from the server's published source (oss-v23.10), down to what it does
 * not do: truncated events stay in `$all` until a scavenge, a read must begin at an event, and a subscription after an
 * event that was scavenged skips the next one.
 *
 * Known to differ from the server:
 * - the log is in memory, and outlives the node in this object ({@link stop}, {@link start}): durability is not tested;
 * - one node; not leading is only pretended ({@link leader});
 * - no access control but one user, no projections, no links, no `$maxAge` and `$maxCount`;
 * - a scavenge takes everything at once, also from the part of the log that is being written.
 */
export class EventStoreDouble {
  log = new DoubleLog();
  readonly #options: DoubleOptions;
  #server: Server | undefined;
  #port = 0;
  readonly #subscriptions = new Set<Readable>();

  onAppend: AppendHook | undefined;
  /** The leader that the node names; undefined: the node itself. */
  leader: { readonly host: string; readonly port: number } | undefined;
  /** The number of calls to answer with "Server Is Not Ready". */
  notReadyFor = 0;
  readonly scavenges: string[] = [];

  private constructor(options: DoubleOptions) {
    this.#options = options;
  }

  static async start(options: DoubleOptions = {}): Promise<EventStoreDouble> {
    const double = new EventStoreDouble(options);
    await double.start();
    return double;
  }

  get port(): number {
    return this.#port;
  }

  get connectionString(): string {
    return `esdb://127.0.0.1:${this.#port}?tls=false`;
  }

  /** Starts the node again, at the same address and with the same log. */
  async start(): Promise<void> {
    const server = new Server({ 'grpc.max_receive_message_length': 17 * 1024 * 1024 });
    server.addService(streamsRpc.StreamsService, {
      read: (call: Readable) => this.#guarded(call, () => this.#read(call)),
      batchAppend: (call: Duplex) => this.#batchAppend(call),
    });
    server.addService(gossipRpc.GossipService, {
      read: (
        _call: ServerUnaryCall<shared.Empty, gossip.ClusterInfo>,
        answer: (error: null, info: gossip.ClusterInfo) => void,
      ) => answer(null, this.#clusterInfo()),
    });
    server.addService(operationsRpc.OperationsService, {
      startScavenge: (
        call: ServerUnaryCall<operations.StartScavengeReq, operations.ScavengeResp>,
        answer: (error: ServiceError | null, response?: operations.ScavengeResp) => void,
      ) => {
        const refusal = this.#refusal(call.metadata);
        if (refusal !== undefined) return answer(refusal);
        const id = crypto.randomUUID();
        this.scavenges.push(id);
        this.log.scavenge(id);
        const response = new operations.ScavengeResp();
        response.setScavengeId(id);
        response.setScavengeResult(operations.ScavengeResp.ScavengeResult.STARTED);
        answer(null, response);
      },
    });
    const { tls } = this.#options;
    const secrets =
      tls === undefined
        ? ServerCredentials.createInsecure()
        : ServerCredentials.createSsl(null, [{ private_key: tls.key, cert_chain: tls.certificate }]);
    this.#port = await new Promise<number>((resolve, reject) => {
      server.bindAsync(`127.0.0.1:${this.#port}`, secrets, (error, port) =>
        error === null ? resolve(port) : reject(error),
      );
    });
    this.#server = server;
  }

  /** As if the process were killed: connections end in the middle of calls. */
  stop(): void {
    this.#server?.forceShutdown();
    this.#server = undefined;
  }

  dropSubscriptions(): void {
    for (const call of this.#subscriptions) call.emit('error', fault(status.ABORTED, 'dropped by the test'));
  }

  /** The reason to refuse a call as a whole. */
  #refusal(metadata: Metadata): ServiceError | undefined {
    const { credentials } = this.#options;
    if (credentials !== undefined) {
      const expected = `Basic ${Buffer.from(`${credentials.user}:${credentials.password}`).toString('base64')}`;
      if (metadata.get('authorization')[0] !== expected) return fault(status.UNAUTHENTICATED, 'Unauthenticated');
    }
    if (this.notReadyFor > 0) {
      this.notReadyFor -= 1;
      return fault(status.UNAVAILABLE, 'Server Is Not Ready');
    }
    if (this.leader !== undefined) {
      const { host, port } = this.leader;
      const trailers = new Metadata();
      trailers.set('exception', 'not-leader');
      trailers.set('leader-endpoint-host', host);
      trailers.set('leader-endpoint-port', String(port));
      return fault(status.NOT_FOUND, 'Leader info available', trailers);
    }
    return undefined;
  }

  #guarded(call: Readable, action: () => Promise<void>): void {
    const refusal = this.#refusal(call.metadata);
    if (refusal !== undefined) {
      call.emit('error', refusal);
      return;
    }
    action().catch((error: unknown) => {
      if (error instanceof StreamDeleted) {
        const trailers = new Metadata();
        trailers.set('exception', 'stream-deleted');
        call.emit('error', fault(status.FAILED_PRECONDITION, error.message, trailers));
        return;
      }
      const reason = error instanceof InvalidPosition ? 'Unexpected FilteredReadAllResult: Error' : String(error);
      call.emit('error', fault(status.UNKNOWN, reason));
    });
  }

  #batchAppend(call: Duplex): void {
    const refusal = this.#refusal(call.metadata);
    if (refusal !== undefined) {
      call.emit('error', refusal);
      return;
    }
    const parts = new Map<string, streams.BatchAppendReq[]>();
    call.on('data', (request: streams.BatchAppendReq) => {
      // A node that has lost the leadership ends the calls that have begun.
      const refusedNow = this.#refusal(call.metadata);
      if (refusedNow !== undefined) {
        call.emit('error', refusedNow);
        return;
      }
      const correlation = request.getCorrelationId()!.getString();
      const list = parts.get(correlation) ?? [];
      list.push(request);
      parts.set(correlation, list);
      if (!request.getIsFinal()) return;
      parts.delete(correlation);
      void this.#append(list).then((response) => {
        if (response !== undefined && !call.destroyed && !call.cancelled) call.write(response);
      });
    });
    call.on('end', () => call.end());
    call.on('error', () => undefined);
  }

  async #append(requests: readonly streams.BatchAppendReq[]): Promise<streams.BatchAppendResp | undefined> {
    const options = requests[0]!.getOptions()!;
    const identifier = options.getStreamIdentifier()!;
    const stream = Buffer.from(identifier.getStreamName_asU8()).toString('utf8');
    const response = new streams.BatchAppendResp();
    response.setCorrelationId(requests[0]!.getCorrelationId());
    response.setStreamIdentifier(identifier);
    const events = requests
      .flatMap((request) => request.getProposedMessagesList())
      .map((message) => ({
        id: message.getId()!.getString().toLowerCase(),
        type: message.getMetadataMap().get('type')!,
        contentType: message.getMetadataMap().get('content-type')!,
        metadata: message.getCustomMetadata_asU8(),
        data: message.getData_asU8(),
      }));
    const most = this.#options.maxAppendBytes ?? 4 * 1024 * 1024;
    const bytes = events.reduce(
      (sum, event) => sum + event.type.length * 2 + event.metadata.length + event.data.length,
      0,
    );
    if (bytes > most) {
      const exceeded = new shared.MaximumAppendSizeExceeded();
      exceeded.setMaxappendsize(most);
      response.setError(
        packed(
          'Maximum Append Size Exceeded',
          'event_store.client.MaximumAppendSizeExceeded',
          exceeded.serializeBinary(),
        ),
      );
      return response;
    }
    const deadline = options.getDeadline();
    if (deadline !== undefined && deadline.toDate().getTime() - Date.now() <= 0) {
      response.setError(packed('Timeout', 'event_store.client.Timeout', new Uint8Array()));
      return response;
    }
    await this.onAppend?.('before', stream);
    const expected = options.hasNoStream() ? -1 : Number(options.getStreamPosition());
    let outcome;
    try {
      outcome = this.log.append(stream, expected, events);
    } catch (error) {
      if (!(error instanceof StreamDeleted)) throw error;
      response.setError(packed('Stream Deleted', 'event_store.client.StreamDeleted', new Uint8Array()));
      return response;
    }
    await this.onAppend?.('after', stream);
    if (outcome.kind === 'wrong-version') {
      const wrong = new shared.WrongExpectedVersion();
      if (outcome.current < 0) wrong.setCurrentNoStream(new shared.Empty());
      else wrong.setCurrentStreamRevision(String(outcome.current));
      response.setError(
        packed('Wrong Expected Version', 'event_store.client.WrongExpectedVersion', wrong.serializeBinary()),
      );
      return response;
    }
    const position = new shared.AllStreamPosition();
    position.setCommitPosition(String(outcome.last.position));
    position.setPreparePosition(String(outcome.last.position));
    const success = new streams.BatchAppendResp.Success();
    success.setCurrentRevision(String(outcome.last.revision));
    success.setPosition(position);
    response.setSuccess(success);
    return response;
  }

  async #read(call: Readable): Promise<void> {
    const options = call.request.getOptions()!;
    const forwards = options.getReadDirection() === streams.ReadReq.Options.ReadDirection.FORWARDS;
    const most = options.hasCount() ? Number(options.getCount()) : Number.POSITIVE_INFINITY;
    const stream = options.getStream();
    if (stream !== undefined) {
      const identifier = stream.getStreamIdentifier()!;
      const name = Buffer.from(identifier.getStreamName_asU8()).toString('utf8');
      const records = this.log.readStream(name);
      if (records === undefined) {
        const notFound = new streams.ReadResp.StreamNotFound();
        notFound.setStreamIdentifier(identifier);
        const response = new streams.ReadResp();
        response.setStreamNotFound(notFound);
        call.write(response);
      } else {
        const from = stream.hasRevision() ? Number(stream.getRevision()) : forwards ? 0 : Number.POSITIVE_INFINITY;
        const wanted = forwards
          ? records.filter((record) => record.revision >= from)
          : records.filter((record) => record.revision <= from).toReversed();
        await this.#send(call, wanted.slice(0, most));
      }
      call.end();
      return;
    }
    const all = options.getAll()!;
    const text = options.getFilter()?.getEventType()?.getRegex();
    const regex = text === undefined ? undefined : new RegExp(text, 'u');
    const allowed = (record: DoubleRecord) => regex === undefined || regex.test(record.type);
    const from = all.hasPosition() ? Number(all.getPosition()!.getCommitPosition()) : undefined;
    if (options.hasSubscription()) {
      await this.#subscribe(call, from, allowed);
      return;
    }
    const records = forwards ? this.log.readForwards(from) : this.log.readBackwards();
    const wanted: DoubleRecord[] = [];
    // A reader may ask for a few records of a long log.
    for (const record of records) {
      if (wanted.length >= most) break;
      if (allowed(record)) wanted.push(record);
    }
    await this.#send(call, wanted);
    call.end();
  }

  async #subscribe(
    call: Readable,
    after: number | undefined,
    allowed: (record: DoubleRecord) => boolean,
  ): Promise<void> {
    const confirmation = new streams.ReadResp.SubscriptionConfirmation();
    confirmation.setSubscriptionId(crypto.randomUUID());
    const confirmed = new streams.ReadResp();
    confirmed.setConfirmation(confirmation);
    // Like the server, takes the first event from that position on as the one to begin after.
    const history = this.log.readForwards(after).slice(after === undefined ? 0 : 1);
    call.write(confirmed);
    let queue: DoubleRecord[] = history.filter(allowed);
    let wake: (() => void) | undefined;
    const stop = this.log.listen((record) => {
      if (allowed(record)) queue.push(record);
      wake?.();
    });
    this.#subscriptions.add(call);
    const end = () => {
      stop();
      this.#subscriptions.delete(call);
      wake?.();
    };
    call.on('cancelled', end);
    call.on('error', end);
    call.on('close', end);
    while (this.#subscriptions.has(call)) {
      const batch = queue;
      queue = [];
      await this.#send(call, batch);
      if (queue.length > 0 || !this.#subscriptions.has(call)) continue;
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  }

  async #send(call: Readable, records: readonly DoubleRecord[]): Promise<void> {
    for (const record of records) {
      if (call.cancelled || call.destroyed) return;
      if (call.write(responseOf(record))) continue;
      await new Promise<void>((resolve) => {
        const goOn = () => {
          for (const event of ['drain', 'cancelled', 'close']) call.off(event, goOn);
          resolve();
        };
        for (const event of ['drain', 'cancelled', 'close']) call.on(event, goOn);
      });
    }
  }

  #clusterInfo(): gossip.ClusterInfo {
    const member = (port: number, state: gossip.MemberInfo.VNodeState) => {
      const endpoint = new gossip.EndPoint();
      endpoint.setAddress('127.0.0.1');
      endpoint.setPort(port);
      const id = new shared.UUID();
      id.setString(crypto.randomUUID());
      const info = new gossip.MemberInfo();
      info.setInstanceId(id);
      info.setIsAlive(true);
      info.setState(state);
      info.setHttpEndPoint(endpoint);
      return info;
    };
    const { LEADER, FOLLOWER } = gossip.MemberInfo.VNodeState;
    const info = new gossip.ClusterInfo();
    info.setMembersList(
      this.leader === undefined
        ? [member(this.#port, LEADER)]
        : [member(this.#port, FOLLOWER), member(this.leader.port, LEADER)],
    );
    return info;
  }
}

function fault(code: status, details: string, metadata = new Metadata()): ServiceError {
  return Object.assign(new Error(details), { code, details, metadata });
}

function packed(message: string, type: string, value: Uint8Array): googleStatus.Status {
  const details = new any.Any();
  details.pack(value, type);
  const error = new googleStatus.Status();
  error.setMessage(message);
  error.setDetails(details);
  return error;
}

function responseOf(record: DoubleRecord): streams.ReadResp {
  const id = new shared.UUID();
  id.setString(record.id);
  const identifier = new shared.StreamIdentifier();
  identifier.setStreamName(Buffer.from(record.stream, 'utf8'));
  const recorded = new streams.ReadResp.ReadEvent.RecordedEvent();
  recorded.setId(id);
  recorded.setStreamIdentifier(identifier);
  recorded.setStreamRevision(String(record.revision));
  recorded.setCommitPosition(String(record.position));
  recorded.setPreparePosition(String(record.position));
  recorded.getMetadataMap().set('type', record.type).set('content-type', record.contentType).set('created', '0');
  recorded.setCustomMetadata(record.metadata);
  recorded.setData(record.data);
  const event = new streams.ReadResp.ReadEvent();
  event.setEvent(recorded);
  event.setCommitPosition(String(record.position));
  const response = new streams.ReadResp();
  response.setEvent(event);
  return response;
}
