# The store as an image: `docker build -t epitaph .`. The program is put together as for `npm start` (docs/adr/0030).
#   docker run -p 127.0.0.1:8081:8081 -v epitaph:/data -e EPITAPH_KEY="$(openssl rand -base64 64 | tr -d '\n')" epitaph
# All options are variables of the environment (docs/operations.md).

FROM node:24-bookworm-slim AS build
WORKDIR /epitaph
ENV CI=true
# As docs/adr/0007-dependencies.md has it.
RUN npm install --global pnpm@12.21.0
COPY package.json pnpm-lock.yaml pnpm-workspace.yaml ./
COPY packages/api/package.json packages/api/
COPY packages/core/package.json packages/core/
COPY packages/projections/package.json packages/projections/
COPY packages/query/package.json packages/query/
COPY packages/scripts/package.json packages/scripts/
COPY packages/storage/package.json packages/storage/
RUN pnpm install --frozen-lockfile --filter epitaph-workspace --filter '@epitaph/api...'
COPY packages/api/src packages/api/src/
COPY packages/core/src packages/core/src/
COPY packages/projections/src packages/projections/src/
COPY packages/query/src packages/query/src/
COPY packages/scripts/src packages/scripts/src/
COPY packages/storage/src packages/storage/src/
COPY scripts/build.ts scripts/
RUN node scripts/build.ts program

FROM node:24-bookworm-slim
WORKDIR /epitaph
ENV NODE_ENV=production \
    EPITAPH_HOST=0.0.0.0 \
    EPITAPH_PORT=8081 \
    EPITAPH_DATA=/data
# The user `node` of the base image owns what is stored and nothing of the program.
RUN mkdir /data && chown node:node /data && chmod 700 /data
COPY --from=build /epitaph/program ./
COPY LICENSE README.md ./
USER node
VOLUME /data
EXPOSE 8081
# Alive, not ready: a node that drains or waits for a server must not be ended for it. Balancers ask health/ready. The
# certificate names the store for others; asked from beside it, it proves nothing.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["node", "-e", "const { EPITAPH_PORT: port, EPITAPH_TLS_CERT: tls } = process.env; const scheme = tls ? 'https' : 'http'; require(scheme).get(`${scheme}://127.0.0.1:${port}/_epitaph/health/live`, { rejectUnauthorized: false }, ({ statusCode }) => process.exit(statusCode === 200 ? 0 : 1)).on('error', () => process.exit(1))"]
# Node.js itself is process 1, so that it gets the signal to stop; it has handlers for those.
ENTRYPOINT ["node", "main.mjs"]
CMD ["serve"]
