package kept_test

import (
	"context"
	"testing"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/config"
)

const quantized = `
[base]
model = {layers = 1, width = 32, heads = 2, context = 16}
data = {train = "t.tokens", validation = "v.tokens"}
train = {steps = 1, batch = 2}
schedule = {rate = 3e-3}
optimizer = {plugin = "adamw"}
[study]
name = "small"
[[study.axes]]
name = "method"
values = [{label = "full"}, {label = "RTN", set = {quantizer = {plugin = "quest", bits = 4}}, quantize = "rtn"}]
`

// TestQuantizedStale: what was quantized from a stale model is stale.
func TestQuantizedStale(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "small.toml", quantized)
	s, err := study.Load("small.toml")
	if err != nil {
		t.Fatal(err)
	}
	f := take(t, s, done(t, s, "1", 0, 1), nil, "r1")
	results := f.Results(s)
	err = f.FindStale(t.Context(), s, results, func(_ context.Context, list []*config.Config) []config.Finding {
		out := make([]config.Finding, len(list))
		for i := range out {
			out[i] = config.Finding{Programs: programs("2"), Data: map[string]string{"t.tokens": "bb"}}
		}
		return out
	})
	if got := states(results); err != nil || got != "stale, stale" {
		t.Errorf("%s, %v", got, err)
	}
}
