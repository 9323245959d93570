import { afterAll, beforeAll } from 'vitest';
import { EventStoreDouble } from '../eventstoredb/double.ts';
import { describeEventStoreLog } from './event-store-contract.ts';

let double: EventStoreDouble;
beforeAll(async () => {
  double = await EventStoreDouble.start();
});
afterAll(() => double.stop());

describeEventStoreLog(
  'the EventStoreDB event log, over gRPC with a stand-in for the server,',
  () => double.connectionString,
);
