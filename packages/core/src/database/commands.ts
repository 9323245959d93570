export interface CreateDatabase {
  readonly type: 'CreateDatabase';
  readonly name: string;
}

export interface DeleteDatabase {
  readonly type: 'DeleteDatabase';
  readonly ifMatch?: string | undefined;
}

export type DatabaseCommand = CreateDatabase | DeleteDatabase;
