import { playwright } from "@vitest/browser-playwright";
import { defineConfig, type ViteUserConfig } from "vitest/config";

/** Tests run on the sources: the same condition as in tsconfig.json picks them. */
const conditions = ["torchload-source"];
const node = (name: string, more: object = {}) => ({
  extends: true as const,
  ssr: { resolve: { conditions: [...conditions, "node"] } },
  test: { name, include: [`test/${name}/**/*.test.ts`], ...more },
});

const config: ViteUserConfig = defineConfig({
  resolve: { conditions },
  test: {
    passWithNoTests: true,
    reporters: ["default", "./test/support/closing-line.ts"],
    testTimeout: 30_000,
    projects: [
      node("unit"),
      node("device"),
      node("hostile"),
      node("roundtrip", { testTimeout: 300_000, hookTimeout: 300_000 }),
      node("corpus", { testTimeout: 120_000 }),
      {
        extends: true as const,
        resolve: { conditions: [...conditions, "browser"] },
        test: {
          name: "browser",
          include: ["test/browser/**/*.test.ts"],
          browser: {
            enabled: true,
            headless: true,
            screenshotFailures: false,
            provider: playwright({
              launchOptions: {
                executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
                args: [
                  "--no-sandbox",
                  "--disable-gpu",
                  "--disable-quic",
                  "--no-first-run",
                  "--disable-background-networking",
                  "--disable-component-update",
                  "--disable-sync",
                ],
              },
            }),
            instances: [{ browser: "chromium" }],
          },
        },
      },
    ],
  },
});

export default config;
