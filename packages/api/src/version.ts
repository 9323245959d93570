import manifest from '../package.json' with { type: 'json' };

/** Of the program. */
export const { version } = manifest;
