package memory_test

import (
	"testing"
	"testing/fstest"

	"github.com/cage-qat/cage/host/train/memory"
)

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
