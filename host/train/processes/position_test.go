package processes

import (
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	slurm := map[string]string{"SLURM_PROCID": "3", "SLURM_NTASKS": "8",
		"SLURM_JOB_NODELIST": "rack[1-2]node[007-012,020],login", "SLURM_JOB_ID": "4097",
		"SLURM_LOCALID": "1"}
	torch := map[string]string{"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "fd00::1",
		"MASTER_PORT": "29400", "LOCAL_RANK": "1"}
	pods := map[string]string{"JOB_COMPLETION_INDEX": "0", "WORLD_SIZE": "2",
		"MASTER_ADDR": "training-0.training"}
	for _, c := range []struct {
		source string
		env    []map[string]string
		want   Position
		err    string
	}{
		{source: "1/2@10.0.0.1:29500", want: Position{1, 2, "10.0.0.1:29500", -1}},
		{source: "2/2@10.0.0.1:29500", err: "got rank 2 of 2, want 0 to 1"},
		{source: "0/0@10.0.0.1:29500", err: "0 processes"},
		{source: "0/1025@10.0.0.1:29500", err: "1025 processes, want 1 to 1024"},
		{source: "0/99999999999999999999@10.0.0.1:29500", err: "want an integer"},
		{source: "0/2@10.0.0.1", err: "HOST:PORT"},
		{source: "torchrun", env: []map[string]string{torch, {"MASTER_ADDR": "a\n12:00:00 [INFO] b"}},
			err: `got address "[a\n12:00:00 [INFO] b]:29400"`},
		{source: "0/2@:29500", err: "HOST:PORT"},
		{source: "", err: "want slurm, torchrun, kubernetes"},
		{source: "mpi", err: "want slurm, torchrun, kubernetes"},
		{source: "slurm", env: []map[string]string{slurm}, want: Position{3, 8, "rack1node007:61441", 1}},
		{source: "slurm", env: []map[string]string{slurm,
			{"SLURM_STEP_NODELIST": "a,b", "SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_ID": "2",
				"SLURM_LOCALID": ""}}, want: Position{3, 4, "a:61443", -1}},
		{source: "slurm", err: "SLURM_JOB_NODELIST is not set: it is set where srun starts the command"},
		{source: "slurm", env: []map[string]string{slurm, {"SLURM_PROCID": "x"}},
			err: `SLURM_PROCID is "x", want an integer`},
		{source: "torchrun", env: []map[string]string{torch}, want: Position{1, 2, "[fd00::1]:29400", 1}},
		{source: "torchrun", env: []map[string]string{torch, {"TORCHELASTIC_USE_AGENT_STORE": "True"}},
			want: Position{1, 2, "[fd00::1]:29401", 1}},
		{source: "torchrun", env: []map[string]string{torch, {"RANK": ""}},
			err: "RANK is not set: torchrun sets it"},
		{source: "kubernetes", env: []map[string]string{pods},
			want: Position{0, 2, "training-0.training:29500", 0}},
		{source: "kubernetes", env: []map[string]string{pods, {"WORLD_SIZE": ""}},
			err: "has to set WORLD_SIZE"},
	} {
		got, err := Find(c.source, func(name string) (value string) {
			for _, e := range c.env {
				if v, set := e[name]; set {
					value = v
				}
			}
			return value
		})
		if c.err == "" && (err != nil || got != c.want) {
			t.Errorf("%s: %+v, %v, want %+v", c.source, got, err, c.want)
		}
		if c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, want it to say %q", c.source, err, c.err)
		}
	}
}
