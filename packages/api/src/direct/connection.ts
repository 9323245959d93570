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
/** Requests of a connection that are under way at once. Clients open another connection beyond 30, if nobody has told them otherwise. */
const MOST_UNDER_WAY = 100;
/** Bytes of answers that a client has not taken, from which on nothing more is read of what it asks for. */
const MOST_UNSENT_BYTES = 4 * 1024 * 1024;
/** For how long clients are told that a connection may be idle, and for how long it may, so that it is they who end it. */
const IDLE_SECONDS = 1_800;
const MOST_IDLE_MS = (IDLE_SECONDS + 60) * 1000;

/** What begins an answer by what is known of a request before its body. */
export type AnswerDirect = (
  request: DirectRequest,
  reply: DirectReply,
  bodyBytes: number,
) => MaybePromise<DirectBody | undefined>;

/** What takes the body of a request that was let in. */
export interface DirectBody {
  /** Told of each piece that has come; false where there is no room for it, and the connection is to end. */
  readonly take: (bytes: number) => boolean;
  readonly end: (body: Buffer | undefined) => void;
}

type ConnectionLimits = Pick<Limits, 'headerBytes' | 'requestTimeoutMs' | 'unsentTimeoutMs'>;

interface DirectSurroundings {
  readonly answer: AnswerDirect;
  /** Told of each request that begins. */
  readonly onRequest: (reply: DirectReply) => void;
  /** Where the log is. */
  readonly headPosition: () => number;
}

/** The connection is at its end, or goes on with what is no message. */
class ConnectionOver extends Error {}

/**
 * One connection of a client in direct mode, a series of messages either way. The first says who the client is; each after that is a
 * request, and is answered when that is done, before or after others.
 *
 * @source `TransportSerialization` and `Connection` of the .NET client's public source, `RntbdRequestFrame` of the Java client's
 */
export class DirectConnection {
  readonly #socket: TLSSocket;
  readonly #limits: ConnectionLimits;
  readonly #surroundings: DirectSurroundings;
  readonly #outgoing: Outgoing;
  readonly #underWay = new Set<DirectReply>();
  #wake: (() => void) | undefined;
  /** Who is silent is hung up on. */
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
    // Of answers that are not taken.
    socket.on('timeout', () => socket.destroy());
    socket.once('close', () => {
      for (const reply of this.#underWay) reply.destroy();
      wake();
    });
  }

  /**
   * Resolves when the connection is over.
   *
   * @throws a defect
   */
  async serve(): Promise<void> {
    try {
      const client = await this.#begin();
      for (;;) await this.#request(client);
    } catch (error) {
      // Nothing says where another message would begin.
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
      // What is refused has said so, and the rest of it is passed over.
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
    // A stream keeps what has come as the pieces that it came in, and each of one byte takes two hundred.
    const taken = Buffer.allocUnsafe(bytes);
    for (let at = 0; at < bytes;) at += (await this.#takeSome(bytes - at)).copy(taken, at);
    return taken;
  }

  async #takeSome(most: number): Promise<Buffer> {
    while (this.#socket.readableLength === 0) await this.#change();
    return this.#socket.read(Math.min(most, this.#socket.readableLength)) as Buffer;
  }

  /** Waits until more has come. */
  async #change(): Promise<void> {
    // That it has ended is told to those who read alone.
    this.#socket.read(0);
    await this.#awoken();
  }

  /**
   * Waits until an answer is out, or more has come. Nothing is read meanwhile: of a buffer that is full Node.js says each time
   * that there is something to read, and with that it would go on and on, and nothing else of the process ever again.
   */
  async #awoken(): Promise<void> {
    if (this.#socket.destroyed || this.#socket.readableEnded) throw new ConnectionOver();
    await new Promise<void>((resolve) => (this.#wake = resolve));
  }
}
