import { BUCKET_SECONDS, type Histogram } from './measurements.ts';

export type Labels = Readonly<Record<string, string>>;

interface Sample {
  readonly labels: Labels;
  readonly value: number;
}

/**
 * Writes metrics in Prometheus' text format.
 *
 * Source: prometheus.io, "Exposition formats", text format version 0.0.4.
 */
export class MetricsText {
  #text = '';

  gauge(name: string, help: string, samples: readonly Sample[] | number): void {
    this.#family(name, 'gauge', help, samples);
  }

  /** The format requires the suffix `_total`. */
  counter(name: `${string}_total`, help: string, samples: readonly Sample[] | number): void {
    this.#family(name, 'counter', help, samples);
  }

  histogram(name: string, help: string, series: readonly { readonly labels: Labels; readonly of: Histogram }[]): void {
    this.#head(name, 'histogram', help);
    for (const { labels, of } of series) {
      const counts = of.cumulative();
      for (const [index, seconds] of BUCKET_SECONDS.entries()) {
        this.#line(`${name}_bucket`, { ...labels, le: String(seconds) }, counts[index]!);
      }
      this.#line(`${name}_bucket`, { ...labels, le: '+Inf' }, counts.at(-1)!);
      this.#line(`${name}_sum`, labels, of.sumSeconds);
      this.#line(`${name}_count`, labels, counts.at(-1)!);
    }
  }

  toString(): string {
    return this.#text;
  }

  #family(name: string, type: string, help: string, samples: readonly Sample[] | number): void {
    this.#head(name, type, help);
    for (const { labels, value } of typeof samples === 'number' ? [{ labels: {}, value: samples }] : samples) {
      this.#line(name, labels, value);
    }
  }

  #head(name: string, type: string, help: string): void {
    this.#text += `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
  }

  #line(name: string, labels: Labels, value: number): void {
    const pairs = Object.entries(labels).map(([label, text]) => `${label}="${escaped(text)}"`);
    this.#text += `${name}${pairs.length === 0 ? '' : `{${pairs.join(',')}}`} ${numberText(value)}\n`;
  }
}

const escaped = (text: string): string =>
  text
    .replaceAll('\\', String.raw`\\`)
    .replaceAll('"', String.raw`\"`)
    .replaceAll('\n', String.raw`\n`);

const numberText = (value: number): string =>
  value === Number.POSITIVE_INFINITY ? '+Inf' : Number.isNaN(value) ? 'NaN' : String(value);
