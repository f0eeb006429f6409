package plugintest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cage-qat/cage/host/train/conformance/values"
	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/sdk/sdktest"
)

// Kit returns the options with which the plugins of this repository run the conformance
// kit: also on the CPU device, and with the golden file of that name.
func Kit(t testing.TB, goldenFile string, more ...sdktest.Option) []sdktest.Option {
	t.Helper()
	text, err := os.ReadFile(goldenPath(goldenFile))
	if err != nil {
		t.Fatal(err)
	}
	published, err := values.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return append(With(t, nil, more...), sdktest.Golden(published))
}

// With returns options for the conformance kit with other settings.
func With(t testing.TB, settings map[string]any, more ...sdktest.Option) []sdktest.Option {
	t.Helper()
	return append([]sdktest.Option{sdktest.On(CPU(t).machine), sdktest.With(settings)}, more...)
}

// EachCase runs a test for each case of the golden file of that name on each machine. It
// is for values that the conformance kit, which also runs these files, does not know how
// to compare.
func EachCase(t *testing.T, goldenFile string, test func(t *testing.T, m Bench, c golden.Case)) {
	t.Helper()
	f := golden.Load(t, goldenPath(goldenFile))
	Each(t, func(t *testing.T, m Bench) {
		f.Run(t, func(t *testing.T, c golden.Case) { test(t, m, c) })
	})
}

func goldenPath(name string) string { return filepath.Join("testdata", name+".json") }
