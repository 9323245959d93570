import { describeSkewedNodes } from './skewed-nodes.ts';

describeSkewedNodes(4, 120_000);
