package build_test

import (
	"math"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/step"
)

// small is a Llama of 2 layers.
var small = build.Sizes{
	Layers: 2, Width: 256, Hidden: 768, Heads: 4, Vocabulary: 1000, Context: 512, Batch: 64,
	Parameters: 2.2e6, Quantized: 1.7e6, States: 4.4e6,
}

// TestReportErr: what fits is not refused, and what does not is told what needs less.
func TestReportErr(t *testing.T) {
	onCPU := small
	onCPU.Replicas, onCPU.Samples = 1, 1e6
	onGPU := onCPU
	onGPU.Replicas, onGPU.GPU = 2, &build.GPU{BFloat16: true, Kernels: true, FusedAttention: true}
	forward := small
	forward.Forward = true
	for _, c := range []struct {
		sizes build.Sizes
		less  []string
	}{
		{onCPU, []string{"train.batch", `train.recompute = "blocks"`, "model.context", "diagnostics", "smaller model"}},
		{onGPU, []string{"train.batch", `device.shard = "full"`, `device.offload = "states"`, "device.memory_fraction"}},
		{forward, []string{"fewer or shorter sequences"}},
	} {
		need := build.Estimate(c.sizes).Total()
		if err := build.NewReport(c.sizes, &build.Available{Bytes: int64(need)}).Err(); err != nil {
			t.Errorf("refused what fits: %v", err)
		}
		err := build.NewReport(c.sizes, &build.Available{Bytes: int64(need / 2), Limit: "of a test"}).Err()
		for _, part := range append(c.less, "are there (of a test)\n", "\nwhat needs less: ") {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("the error does not say %q: %v", part, err)
			}
		}
	}
}

// TestCheckWithoutMachine: where nothing is known of the machine, only what no machine
// has is refused.
func TestCheckWithoutMachine(t *testing.T) {
	if err := build.NewReport(small, nil).Err(); err != nil {
		t.Error(err)
	}
	huge := small
	huge.Context, huge.Heads = 1<<20, 1<<16
	if err := build.NewReport(huge, nil).Err(); err == nil {
		t.Error("a petabyte was not refused")
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[float64]string{0: "0 B", 999: "999 B", 1000: "1 kB", 1234567: "1.23 MB", 62.4e12: "62.4 TB", 1e30: "1e+06 YB",
		999.6: "1 kB", 999.4e6: "999 MB", 999.7e6: "1 GB", 999.99e9: "1 TB"} {
		if got := build.Bytes(n); got != want {
			t.Errorf("%g: %q, want %q", n, got, want)
		}
	}
}

// TestOf: the least of what the machine has and its control groups allow.
func TestOf(t *testing.T) {
	const gib = 1 << 30
	meminfo := "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:    8388608 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  build.Available
		ok    bool
	}{
		"a system that does not tell": {nil, build.Available{}, false},
		"no control group":            {map[string]string{"proc/meminfo": meminfo}, build.Available{Bytes: 8 * gib, Limit: "free memory of the machine"}, true},
		"version 2, in a container": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "4294967296\n", "sys/fs/cgroup/memory.current": "3221225472\n",
			"sys/fs/cgroup/memory.stat": "anon 1\ninactive_file 2147483648\n",
		}, build.Available{Bytes: 3 * gib, Limit: "limit of the control group sys/fs/cgroup"}, true},
		"version 2, the limit is above": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/slurm/job\n",
			"sys/fs/cgroup/slurm/job/memory.max": "max\n", "sys/fs/cgroup/slurm/job/memory.current": "0\n",
			"sys/fs/cgroup/slurm/memory.max": "1073741824\n", "sys/fs/cgroup/slurm/memory.current": "0\n",
		}, build.Available{Bytes: gib, Limit: "limit of the control group sys/fs/cgroup/slurm"}, true},
		"version 2, without a limit": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/memory.max": "max\n",
		}, build.Available{Bytes: 8 * gib, Limit: "free memory of the machine"}, true},
		"more in use than allowed": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "100\n", "sys/fs/cgroup/memory.current": "200\n",
		}, build.Available{Bytes: 0, Limit: "limit of the control group sys/fs/cgroup"}, true},
		"not numbers": {map[string]string{"proc/meminfo": "MemAvailable: x kB\n", "proc/self/cgroup": "0::\nnonsense\n"}, build.Available{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{}
			for path, content := range c.files {
				root[path] = &fstest.MapFile{Data: []byte(content)}
			}
			got, ok := build.AvailableIn(root)
			if ok != c.ok || ok && got != c.want {
				t.Errorf("%+v, %v; want %+v, %v", got, ok, c.want, c.ok)
			}
		})
	}
}

// TestCheckOffload: states in the machine's memory take none of the GPU's, and the machine must have that much.
func TestCheckOffload(t *testing.T) {
	m := small
	m.Replicas, m.GPU = 1, &build.GPU{BFloat16: true}
	m.Parameters, m.States, m.Offloadable = 1e9, 21e8, 2e9
	need := build.Estimate(m)
	offloaded := m
	offloaded.Offload = true
	after := build.Estimate(offloaded)
	if after.Host != 8e9 || math.Abs(need.Total()-after.Total()-8e9) > 1 || need.Host != 0 {
		t.Errorf("%g bytes, offloaded %g and %g of the machine's", need.Total(), after.Total(), after.Host)
	}
	err := build.CheckHost(offloaded, build.Available{Bytes: 7e9, Limit: "of a test"})
	if want := `device.offload = "states" keeps 8 GB of states for each GPU in the machine's memory, and 7 GB are there (of a test)`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	for _, fits := range []error{build.CheckHost(m, build.Available{Bytes: 1}), build.CheckHost(offloaded, build.Available{Bytes: 9e9})} {
		if fits != nil {
			t.Error(fits)
		}
	}
	if r := build.CompiledReport(offloaded, step.Memory{State: 1, Host: 2}, nil); r.Bytes != 1 || r.Host != 2 {
		t.Errorf("by XLA %+v", r)
	}
}
