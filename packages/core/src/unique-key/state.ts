/** Who took a value of a unique key last. Whether it is still theirs is in the holder's own stream. */
export interface UniqueKeyState {
  readonly holder: string | undefined;
}

export const initialUniqueKeyState: UniqueKeyState = { holder: undefined };
