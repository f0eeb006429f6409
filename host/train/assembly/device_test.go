package assembly_test

import (
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/internal/pjrtrecord"
	"github.com/cage-qat/cage/host/train/assembly"
	"github.com/cage-qat/cage/host/train/config"
)

func TestDeviceCount(t *testing.T) {
	plugin, _ := pjrtrecord.Plugin(t, 2)
	t.Setenv(engine.PluginPathVariable, plugin)
	const text = `[model]
layers = 2
width = 64
heads = 2
context = 32
[data]
train = "a.tok"
validation = "b.tok"
[train]
steps = 10
batch = 12
[schedule]
rate = 1e-3
[device]
kind = "cuda"
`
	for count, want := range map[string]string{"1": "", "2": "", "3": `run.toml:16: device.count: device "cuda": 3 replicas: it has 2 GPU(s)`} {
		cfg, err := config.Parse("run.toml", []byte(text+"count = "+count+"\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		d, err := assembly.Device(cfg, nil)
		switch {
		case want == "" && err != nil:
			t.Errorf("%s GPUs: %v", count, err)
		case want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)):
			t.Errorf("%s GPUs: got error %v, want %q", count, err, want)
		}
		if d != nil {
			if d.Close() != nil {
				t.Error("the device does not close")
			}
		}
	}
}
