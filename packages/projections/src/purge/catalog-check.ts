import { foldDatabase } from '@epitaph/core/database/evolve.ts';
import type { DatabaseState } from '@epitaph/core/database/state.ts';
import { databaseStream } from '@epitaph/core/database/stream-name.ts';
import { evolveContainer } from '@epitaph/core/container/evolve.ts';
import type { ContainerState } from '@epitaph/core/container/state.ts';
import { containerStream } from '@epitaph/core/container/stream-name.ts';
import { streamPages } from '@epitaph/core/log/stream-pages.ts';
import { unlessDamaged } from '@epitaph/core/upcast.ts';
import { PurgeFault } from './faults.ts';
import type { PurgePorts } from './ports.ts';

/**
 * Checks that the catalog's state of a container agrees with its stream in everything that decides what is erased. Read
 * models may be damaged, and content that is erased because of that is lost. A container is checked once, before
 * anything of it is erased; later changes of the catalog come from the log.
 */
export class CatalogCheck {
  readonly #ports: Pick<PurgePorts, 'log' | 'catalog' | 'projected'>;
  readonly #agreed = new Set<string>();

  constructor(ports: Pick<PurgePorts, 'log' | 'catalog' | 'projected'>) {
    this.#ports = ports;
  }

  /** @throws {PurgeFault} if they differ */
  async assertAgrees(rid: string): Promise<void> {
    if (this.#agreed.has(rid)) return;
    const known = this.#ports.catalog().containerByRid(rid)?.state;
    if (known?.lacksEvents === true) {
      throw new PurgeFault(
        `the event log had lost events of ${containerStream(rid)} when the read models were made; no expiry is recorded and nothing is erased in it until the log is restored, or until you set the policy of ${known.name} again: epitaph ttl … --confirm`,
      );
    }
    // If the log can't tell, nothing else can.
    if ((await this.#agrees(rid).catch(unlessDamaged)) === false) {
      throw new PurgeFault(
        `policies or end of ${containerStream(rid)} differ between the read models and the event log; no expiry is recorded and nothing is erased in it until they agree. epitaph fsck says which is damaged`,
      );
    }
    this.#agreed.add(rid);
  }

  async #agrees(rid: string): Promise<boolean> {
    const { log, catalog, projected } = this.#ports;
    for (let known = 0; ;) {
      let recorded: ContainerState | undefined;
      let events = 0;
      let position = 0;
      for await (const page of streamPages(log, containerStream(rid))) {
        for (const event of page) {
          recorded = evolveContainer(recorded, event);
          ({ position } = event);
        }
        events += page.length;
      }
      if (recorded === undefined) return false;
      const ofDatabase = await log.readStream(databaseStream(recorded.databaseRid));
      const database = foldDatabase(ofDatabase);
      // The catalog may not have yet what was recorded a moment ago.
      await projected(Math.max(position, ofDatabase.at(-1)?.position ?? 0));
      const shown = catalog().containerByRid(rid)?.state;
      const within = shown && catalog().databaseByRid(shown.databaseRid);
      if (decisive(recorded, database) === decisive(shown, within)) return true;
      // Or the catalog has events that were recorded after the stream was read.
      if (events === known) return false;
      known = events;
    }
  }
}

/** Everything that decides when something of a container is erased. */
function decisive(container: ContainerState | undefined, database: DatabaseState | undefined): string {
  return JSON.stringify([
    container?.status,
    container?.deletedAtMs,
    container?.databaseRid,
    container?.timeline.map(({ fromMs, defaultTtl, version }) => [fromMs, defaultTtl, version]),
    container?.policyGraceSeconds,
    container?.retention.recoveryWindowSeconds,
    container?.partitionKeyDeletes.map(({ partitionKey, atMs, position }) => [partitionKey, atMs, position]),
    database?.status,
    database?.deletedAtMs,
  ]);
}
