export type { Query } from './language/ast.ts';
export { missingFeatures, planForClients, UNASKED } from './pages/client-plan.ts';
export type { ClientPlan, MergingClient } from './pages/client-plan.ts';
export type { ComputedProperty } from './compile/compile.ts';
export { checkComputedProperties } from './compile/computed-properties.ts';
export { QueryError } from './errors.ts';
export type { QueryErrorDetail } from './errors.ts';
export type { EvaluationContext } from './pages/context.ts';
export {
  bytesOfPlaces,
  DocumentPlaces,
  type FoundPlaces,
  hasLastingPlaces,
  placesText,
} from './pages/document-places.ts';
export { evaluate, matches, startEvaluation } from './pages/evaluate.ts';
export type { Evaluation } from './pages/evaluate.ts';
export { tryDocuments } from './pages/trial.ts';
export { hasLargeNumbers, integerValue, jsonText, jsonTextAgain, parseJson } from './values/json-text.ts';
export { keepNames } from './values/name-order.ts';
export { Memory } from './values/memory.ts';
export { isOfMany, isOrdered, isRanked, OrderedPage, orderText } from './pages/ordered-page.ts';
export type { OrderedRow } from './pages/ordered-page.ts';
export { parseCondition, parseQuery } from './language/parser.ts';
export type { ParseLimits } from './language/parser.ts';
export { isInOnePage, isOfAllRanges, isOfGroups, isOfRows, NO_BOUNDS, PLAIN_PIPELINE } from './pages/pipeline.ts';
export { MAX_NEIGHBOURS, startAfter } from './run/place.ts';
export type { Neighbours, OrderedStart } from './run/place.ts';
export { FunctionCalls } from './run/calls.ts';
export type { UserFunctionCall, UserFunctions } from './run/calls.ts';
export { Chosen, choosingPlan, planQuery, sparingPlan, withoutValues } from './compile/plan.ts';
export type { PlanOptions, QueryParameter, QueryPlan } from './compile/plan.ts';
export type { PathComparison, PathEquality, Pushdown } from './compile/pushdown.ts';
export { compareValues, isNumeric } from './values/values.ts';
export type { Json, Value } from './values/values.ts';
