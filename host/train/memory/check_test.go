package memory_test

import (
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/train/memory"
)

// small is a Llama of 2 layers.
var small = memory.Model{
	Layers: 2, Width: 256, Hidden: 768, Heads: 4, Vocabulary: 1000, Context: 512, Batch: 64,
	Parameters: 2.2e6, Quantized: 1.7e6, States: 4.4e6,
}

// TestCheckPart: an error about a part of what is needed says so, and not what would fit.
func TestCheckPart(t *testing.T) {
	need := memory.Estimate(small).Total()
	if err := memory.CheckPart(small, &memory.Available{Bytes: int64(need)}); err != nil {
		t.Errorf("refused what fits: %v", err)
	}
	err := memory.CheckPart(small, &memory.Available{Bytes: int64(need / 2), Limit: "of a test"})
	for _, part := range []string{"this needs at least ", "(of a test)\n", "\n  and what quantizers and optimizers need\nwhat would fit is a smaller model"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
	large := small
	large.Parameters = 1e15
	if err := memory.CheckPart(large, nil); err == nil || !strings.Contains(err.Error(), "more than any machine has") {
		t.Errorf("on no machine: %v", err)
	}
}

// numbers are those of a changed setting, in the order of its text.
func numbers(t *testing.T, change string) (list []int) {
	t.Helper()
	for _, digits := range regexp.MustCompile(`[0-9]+`).FindAllString(change, -1) {
		n, err := strconv.Atoi(digits)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, n)
	}
	return list
}

// changed applies a changed setting, and returns also the model with the next larger one, if there is such.
func changed(t *testing.T, m memory.Model, change string) (with memory.Model, more *memory.Model) {
	t.Helper()
	with, n := m, numbers(t, change)
	if strings.HasPrefix(change, `train.recompute = "blocks"`) {
		with.Recompute = architecture.RecomputeBlocks
		change = strings.TrimPrefix(change, `train.recompute = "blocks" and `)
	} else if strings.HasPrefix(change, "train.recompute = ") {
		with.Recompute = architecture.RecomputeAttention
	}
	next := with
	switch {
	case strings.HasPrefix(change, "train.batch = "):
		with.Batch, with.Accumulate, next.Batch = n[0]/m.Replicas, n[1], n[0]/m.Replicas+1
		if len(n) > 2 { // the largest that fits is no divisor
			next.Batch = n[2]/m.Replicas + 1
		}
		if with.Batch*with.Accumulate != m.Batch*m.Accumulate {
			t.Errorf("%s is not as many sequences as %d times %d", change, m.Batch, m.Accumulate)
		}
	case strings.HasPrefix(change, "model.context = "):
		with.Context, next.Context = n[0], n[0]+1
	case strings.HasPrefix(change, "device.offload = "):
		with.Offload = true
		return with, nil
	case strings.HasPrefix(change, "device.shard = "):
		with.StateShards = m.Replicas
		if strings.Contains(change, "full") {
			with.ParameterShards = m.Replicas
		}
		return with, nil
	default:
		return with, nil
	}
	return with, &next
}

// TestCheck: what is said to fit does fit, and one more does not.
func TestCheck(t *testing.T) {
	onCPU := small
	onCPU.Replicas, onCPU.Accumulate = 1, 3
	onGPU := onCPU
	onGPU.Replicas, onGPU.GPU = 2, &memory.GPU{BFloat16: true, Kernels: true, FusedAttention: true}
	for _, m := range []memory.Model{onCPU, onGPU} {
		need := memory.Estimate(m).Total()
		if err := memory.Check(m, &memory.Available{Bytes: int64(need)}); err != nil {
			t.Errorf("refused what fits: %v", err)
		}
		for _, share := range []float64{0.6, 0.3} {
			available := &memory.Available{Bytes: int64(share * need), Limit: "of a test"}
			tooLarge, ok := errors.AsType[*memory.Error](memory.Check(m, available))
			if !ok || len(tooLarge.Changes) < 1 {
				t.Fatalf("%g of what is needed: %v", share, tooLarge)
			}
			for _, change := range tooLarge.Changes {
				with, more := changed(t, m, change)
				if got := memory.Estimate(with).Total(); got > float64(available.Bytes) {
					t.Errorf("%s needs %g bytes of %d", change, got, available.Bytes)
				}
				if more != nil && memory.Estimate(*more).Total() <= float64(available.Bytes) {
					t.Errorf("one more than %s would fit, too", change)
				}
			}
		}
	}
}

// TestCheckSamples: samples of codes count, and where they are too many, fewer are the way out.
func TestCheckSamples(t *testing.T) {
	sampled := small
	sampled.Samples = 1e9
	err := memory.Check(sampled, &memory.Available{Bytes: int64(memory.Estimate(small).Total()) + 1})
	if e, ok := errors.AsType[*memory.Error](err); !ok || len(e.Changes) != 1 || !strings.Contains(e.Changes[0], "diagnostics.window") {
		t.Errorf("a thousand million samples: %v", err)
	}
}

// TestCheckWithoutMachine: where nothing is known of the machine, only what no machine
// has is refused.
func TestCheckWithoutMachine(t *testing.T) {
	if err := memory.Check(small, nil); err != nil {
		t.Error(err)
	}
	huge := small
	huge.Context, huge.Heads = 1<<20, 1<<16
	if err := memory.Check(huge, nil); err == nil {
		t.Error("a petabyte was not refused")
	}
}

func TestBytes(t *testing.T) {
	for n, want := range map[float64]string{0: "0 B", 999: "999 B", 1000: "1 kB", 1234567: "1.23 MB", 62.4e12: "62.4 TB", 1e30: "1e+06 YB",
		999.6: "1 kB", 999.4e6: "999 MB", 999.7e6: "1 GB", 999.99e9: "1 TB"} {
		if got := memory.Bytes(n); got != want {
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
		want  memory.Available
		ok    bool
	}{
		"a system that does not tell": {nil, memory.Available{}, false},
		"no control group":            {map[string]string{"proc/meminfo": meminfo}, memory.Available{Bytes: 8 * gib, Limit: "free memory of the machine"}, true},
		"version 2, in a container": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "4294967296\n", "sys/fs/cgroup/memory.current": "3221225472\n",
			"sys/fs/cgroup/memory.stat": "anon 1\ninactive_file 2147483648\n",
		}, memory.Available{Bytes: 3 * gib, Limit: "limit of the control group sys/fs/cgroup"}, true},
		"version 2, the limit is above": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/slurm/job\n",
			"sys/fs/cgroup/slurm/job/memory.max": "max\n", "sys/fs/cgroup/slurm/job/memory.current": "0\n",
			"sys/fs/cgroup/slurm/memory.max": "1073741824\n", "sys/fs/cgroup/slurm/memory.current": "0\n",
		}, memory.Available{Bytes: gib, Limit: "limit of the control group sys/fs/cgroup/slurm"}, true},
		"version 2, without a limit": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/memory.max": "max\n",
		}, memory.Available{Bytes: 8 * gib, Limit: "free memory of the machine"}, true},
		"version 1": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/job\n0::/\n",
			"sys/fs/cgroup/memory/job/memory.limit_in_bytes": "2147483648\n", "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "1073741824\n",
			"sys/fs/cgroup/memory/job/memory.stat":       "cache 5\ntotal_inactive_file 0\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, memory.Available{Bytes: gib, Limit: "limit of the control group sys/fs/cgroup/memory/job"}, true},
		"version 1, the path is not visible": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/docker/abc\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n", "sys/fs/cgroup/memory/memory.usage_in_bytes": "0\n",
		}, memory.Available{Bytes: gib, Limit: "limit of the control group sys/fs/cgroup/memory"}, true},
		"more in use than allowed": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "100\n", "sys/fs/cgroup/memory.current": "200\n",
		}, memory.Available{Bytes: 0, Limit: "limit of the control group sys/fs/cgroup"}, true},
		"not numbers": {map[string]string{"proc/meminfo": "MemAvailable: x kB\n", "proc/self/cgroup": "0::\nnonsense\n"}, memory.Available{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{}
			for path, content := range c.files {
				root[path] = &fstest.MapFile{Data: []byte(content)}
			}
			got, ok := memory.Of(root)
			if ok != c.ok || ok && got != c.want {
				t.Errorf("%+v, %v; want %+v, %v", got, ok, c.want, c.ok)
			}
		})
	}
}

// TestCheckOffload: states in the machine's memory take none of the GPU's, which is advised where it helps, and the machine must have that much.
func TestCheckOffload(t *testing.T) {
	m := small
	m.Replicas, m.GPU = 1, &memory.GPU{BFloat16: true}
	m.Parameters, m.States, m.Offloadable = 1e9, 21e8, 2e9
	need := memory.Estimate(m)
	offloaded := m
	offloaded.Offload = true
	after := memory.Estimate(offloaded)
	if after.Host != 8e9 || math.Abs(need.Total()-after.Total()-8e9) > 1 || need.Host != 0 {
		t.Errorf("%g bytes, offloaded %g and %g of the machine's", need.Total(), after.Total(), after.Host)
	}
	err := memory.Check(m, &memory.Available{Bytes: int64(after.Total()) + 1, Limit: "of a test"})
	if want := `device.offload = "states" (` + memory.Bytes(after.Total()) + ", and 8 GB of the machine's memory)"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	err = memory.CheckHost(offloaded, &memory.Available{Bytes: 7e9, Limit: "of a test"})
	if want := `device.offload = "states" keeps 8 GB of states for each GPU in the machine's memory, and 7 GB are there (of a test)`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	for _, fits := range []error{memory.CheckHost(m, &memory.Available{Bytes: 1}), memory.CheckHost(offloaded, &memory.Available{Bytes: 9e9}), memory.CheckHost(offloaded, nil)} {
		if fits != nil {
			t.Error(fits)
		}
	}
	if r := memory.ByXLA(offloaded, memory.Compiled{State: 1, Host: 2}, nil); r.Bytes != 1 || r.Host != 2 {
		t.Errorf("by XLA %+v", r)
	}
}
