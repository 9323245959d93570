import type { TLSSocket } from 'node:tls';
import type { MaybePromise } from '@epitaph/core/maybe-promise.ts';
import type { Limits } from '../http/limits.ts';
import { Pieces } from '../http/pieces.ts';
import { version } from '../version.ts';
import { Deadline } from '../wait.ts';
import { connectionMessage } from './answer.ts';
import { GUID_BYTES, readGuid } from './guid.ts';
import { Outgoing } from './outgoing.ts';
import { DirectReply } from './reply.ts';
import {
  clientFacts,
  type ClientFacts,
  directRequest,
  type DirectRequest,
  hasPayload,
  type Message,
} from './request.ts';
import { readTokens, UnreadableTokens } from './tokens.ts';

/** Bytes of a message before its tokens: the length of both, resource, operation, and the activity id. */
const HEAD_BYTES = 4 + 2 + 2 + GUID_BYTES;
/**
 * The most requests of a connection that are under way at once. By default, clients open another connection beyond 30.
 */
const MOST_UNDER_WAY = 100;
/** While this many bytes of answers are unsent, no further requests of the client are read. */
const MOST_UNSENT_BYTES = 4 * 1024 * 1024;
/** How long a connection may be idle. Clients are told a shorter time, so that they close it first. */
const IDLE_SECONDS = 1_800;
const MOST_IDLE_MS = (IDLE_SECONDS + 60) * 1000;

/** Begins an answer with what is known of a request before its body. */
export type AnswerDirect = (
  request: DirectRequest,
  reply: DirectReply,
  bodyBytes: number,
) => MaybePromise<DirectBody | undefined>;

/** Receives the body of a request that was let in. */
export interface DirectBody {
  /**
   * Called with the size of each piece that arrives. Returns false if there is no room for it, and the connection must
   * end.
   */
  readonly take: (bytes: number) => boolean;
  readonly end: (body: Buffer | undefined) => void;
}

type ConnectionLimits = Pick<Limits, 'headerBytes' | 'requestTimeoutMs' | 'unsentTimeoutMs'>;

interface DirectSurroundings {
  readonly answer: AnswerDirect;
  /** Called for each request that begins. */
  readonly onRequest: (reply: DirectReply) => void;
  readonly headPosition: () => number;
}

/** Thrown when the connection has ended, or what it sends next is not a message. */
class ConnectionOver extends Error {}

/**
 * One connection of a client in direct mode: a series of messages in both directions. The first message says who the
 * client is. Each one after that is a request. It is answered when it is done, so answers may come in another order
 * than the requests.
 *
 * @source `TransportSerialization` and `Connection` of the .NET client's public source, `RntbdRequestFrame` of the Java
 *   client's
 */
export class DirectConnection {
  readonly #socket: TLSSocket;
  readonly #limits: ConnectionLimits;
  readonly #surroundings: DirectSurroundings;
  readonly #outgoing: Outgoing;
  readonly #underWay = new Set<DirectReply>();
  #wake: (() => void) | undefined;
  /** Closes the connection of a client that is silent for too long. */
  readonly #deadline: Deadline;

  constructor(socket: TLSSocket, limits: ConnectionLimits, surroundings: DirectSurroundings) {
    this.#socket = socket;
    this.#limits = limits;
    this.#surroundings = surroundings;
    this.#outgoing = new Outgoing(socket, limits.unsentTimeoutMs);
    this.#deadline = new Deadline(() => socket.destroy());
    socket.setNoDelay(true);
    const wake = () => this.#wake?.();
    socket.on('readable', wake).on('end', wake);
    socket.on('error', () => socket.destroy());
    // The timeout of answers that the client does not read.
    socket.on('timeout', () => socket.destroy());
    socket.once('close', () => {
      for (const reply of this.#underWay) reply.destroy();
      wake();
    });
  }

  /**
   * Resolves when the connection is over.
   *
   * @throws an error that is a defect
   */
  async serve(): Promise<void> {
    try {
      const client = await this.#begin();
      for (;;) await this.#request(client);
    } catch (error) {
      // It is unknown where the next message would begin.
      this.#socket.destroy();
      if (!(error instanceof ConnectionOver || error instanceof UnreadableTokens)) throw error;
    } finally {
      this.#deadline.met();
    }
  }

  async #begin(): Promise<ClientFacts> {
    const { resource, operation, activityId, tokens } = await this.#message();
    if (resource !== 0 || operation !== 0) throw new ConnectionOver();
    const client = clientFacts(tokens);
    this.#outgoing.send(
      connectionMessage(activityId, {
        clientVersion: client.version,
        version,
        idleSeconds: IDLE_SECONDS,
        unauthenticatedSeconds: Math.floor(this.#limits.requestTimeoutMs / 1000),
      }),
    );
    return client;
  }

  async #request(client: ClientFacts): Promise<void> {
    while (this.#underWay.size >= MOST_UNDER_WAY || this.#outgoing.bytes >= MOST_UNSENT_BYTES) {
      await this.#awoken();
    }
    const message = await this.#message();
    const request = directRequest(message, client);
    const bodyBytes = hasPayload(message.tokens) ? (await this.#take(4)).readUInt32LE(0) : 0;
    const reply = new DirectReply({
      socket: this.#socket,
      outgoing: this.#outgoing,
      activityId: message.activityId,
      transportId: request.transportId,
      clientVersion: client.version,
      headPosition: this.#surroundings.headPosition,
    });
    this.#underWay.add(reply);
    reply.once('close', () => {
      this.#underWay.delete(reply);
      this.#wake?.();
    });
    this.#surroundings.onRequest(reply);
    const body = await this.#surroundings.answer(request, reply, bodyBytes);
    const pieces = new Pieces();
    for (let left = bodyBytes; left > 0;) {
      const piece = await this.#takeSome(left);
      left -= piece.length;
      // The request was refused and answered, and the rest of its body is skipped.
      if (body === undefined) continue;
      if (!body.take(piece.length)) throw new ConnectionOver();
      pieces.push(piece);
    }
    this.#deadline.met();
    body?.end(bodyBytes === 0 ? undefined : pieces.whole());
  }

  async #message(): Promise<Message> {
    if (this.#socket.readableLength === 0) {
      this.#deadline.within(MOST_IDLE_MS);
      while (this.#socket.readableLength === 0) await this.#change();
    }
    this.#deadline.within(this.#limits.requestTimeoutMs);
    const head = await this.#take(HEAD_BYTES);
    const tokenBytes = head.readUInt32LE(0) - HEAD_BYTES;
    if (tokenBytes < 0 || tokenBytes > this.#limits.headerBytes) throw new ConnectionOver();
    const tokens = readTokens(await this.#take(tokenBytes));
    return { resource: head.readUInt16LE(4), operation: head.readUInt16LE(6), activityId: readGuid(head, 8), tokens };
  }

  async #take(bytes: number): Promise<Buffer> {
    // A stream keeps the pieces in which data arrived, and each piece of one byte takes two hundred.
    const taken = Buffer.allocUnsafe(bytes);
    for (let at = 0; at < bytes;) at += (await this.#takeSome(bytes - at)).copy(taken, at);
    return taken;
  }

  async #takeSome(most: number): Promise<Buffer> {
    while (this.#socket.readableLength === 0) await this.#change();
    return this.#socket.read(Math.min(most, this.#socket.readableLength)) as Buffer;
  }

  /** Waits until more data has arrived. */
  async #change(): Promise<void> {
    // The end of the stream is only reported to a reader.
    this.#socket.read(0);
    await this.#awoken();
  }

  /**
   * Waits until an answer has been sent or more data has arrived. Nothing is read meanwhile. For a full buffer, Node.js
   * reports each time that there is something to read; reading then would repeat that for ever, and nothing else in the
   * process would run.
   */
  async #awoken(): Promise<void> {
    if (this.#socket.destroyed || this.#socket.readableEnded) throw new ConnectionOver();
    await new Promise<void>((resolve) => (this.#wake = resolve));
  }
}
