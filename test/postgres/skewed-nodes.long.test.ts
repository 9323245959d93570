import { describeSkewedNodes } from './skewed-nodes.ts';

describeSkewedNodes(200, 1_800_000);
