/**
 * What is used of rxjs, from the files that it is in: the entrance of the package loads all of its two hundred, which took
 * each start of the program and each process of the tests 50 ms of computing.
 */
export { Observable } from 'rxjs/internal/Observable';
export { defer } from 'rxjs/internal/observable/defer';
export { interval } from 'rxjs/internal/observable/interval';
export { timer } from 'rxjs/internal/observable/timer';
export { concatMap } from 'rxjs/internal/operators/concatMap';
export { retry } from 'rxjs/internal/operators/retry';
export { Subscription } from 'rxjs/internal/Subscription';
