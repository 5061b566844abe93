/**
 * A reporter that ends a run with one plain line, `N passed, N failed, N skipped`, for programs that read it.
 *
 * @module
 */
import type { Reporter, TestModule } from "vitest/node";

/** Counts the tests of a run. */
export default class ClosingLine implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    const counts = { passed: 0, failed: 0, skipped: 0 };
    for (const module of modules) {
      if (module.errors().length > 0) counts.failed++;
      for (const test of module.children.allTests()) {
        const { state } = test.result();
        if (state !== "pending") counts[state]++;
      }
    }
    // Behind the other reporters' summaries.
    setTimeout(() => console.log(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`));
  }
}
