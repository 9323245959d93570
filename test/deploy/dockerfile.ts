import { readFileSync } from 'node:fs';
import path from 'node:path';

export const ROOT = path.resolve(import.meta.dirname, '../..');

export interface Instruction {
  readonly name: string;
  readonly text: string;
}

export interface Stage {
  readonly base: string;
  readonly as: string | undefined;
  readonly instructions: readonly Instruction[];
}

/** The stages of the Dockerfile. Parses only the syntax that this project's file uses. */
export function readDockerfile(): Stage[] {
  const text = readFileSync(path.join(ROOT, 'Dockerfile'), 'utf8')
    .replaceAll(/^#.*\n/gm, '')
    .replaceAll(/\\\n\s*/g, ' ');
  const stages: { base: string; as: string | undefined; instructions: Instruction[] }[] = [];
  for (const line of text.split('\n').filter((line) => line.trim() !== '')) {
    const [, name, rest] = /^([A-Z]+) +(.*)$/.exec(line)!;
    if (name === 'FROM') {
      const [, base, as] = /^(\S+)(?: AS (\S+))?$/.exec(rest!)!;
      stages.push({ base: base!, as, instructions: [] });
    } else stages.at(-1)!.instructions.push({ name: name!, text: rest! });
  }
  return stages;
}

/** The arguments of all instructions of a kind. */
export function every(stage: Stage, name: string): string[] {
  return stage.instructions.filter((instruction) => instruction.name === name).map(({ text }) => text);
}

/** The variables that a stage sets. */
export function environmentOf(stage: Stage): Record<string, string> {
  return Object.fromEntries(
    every(stage, 'ENV').flatMap((text) =>
      text.split(/ +/).map((pair): [string, string] => {
        const at = pair.indexOf('=');
        return [pair.slice(0, at), pair.slice(at + 1)];
      }),
    ),
  );
}

/** The sources and the target of a COPY. */
export function copyOf(text: string): { readonly from: string | undefined; sources: string[]; target: string } {
  const words = text.split(/ +/);
  const from = words[0]!.startsWith('--from=') ? words.shift()!.slice('--from='.length) : undefined;
  const target = words.pop()!;
  return { from, sources: words, target };
}
