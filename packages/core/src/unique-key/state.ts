/** The life that took a value of a unique key last. Whether it still has the value is in the life's own stream. */
export interface UniqueKeyState {
  readonly holder: string | undefined;
}

export const initialUniqueKeyState: UniqueKeyState = { holder: undefined };
