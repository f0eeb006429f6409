package checkpoint_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

// The test binary runs itself as the process that is killed.
const (
	crashDirEnv  = "CHECKPOINT_TEST_CRASH_DIR"
	crashModeEnv = "CHECKPOINT_TEST_CRASH_MODE"
	crashSize    = 1 << 19 // floats per tensor: 2 MiB, so that kills interrupt writes
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDirEnv); dir != "" {
		if err := saveForever(dir, os.Getenv(crashModeEnv)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// saveForever continues from the newest checkpoint. It saves one checkpoint after another, and
// prints the value in each after it is saved. In mode "advance", the step is the value; in mode
// "replace", it is always 7. With "in parts", checkpoints have parts.
func saveForever(dir, mode string) error {
	value := 0
	if entries, err := checkpoint.List(vfs.At(dir)); err != nil {
		return err
	} else if len(entries) > 0 {
		if err := checkpoint.Latest(vfs.At(dir), nil,
			func(f *checkpoint.File) error { return f.Meta.Get("value", &value) }); err != nil {
			return err
		}
	}
	keeper := checkpoint.NewKeeper(vfs.At(dir), 2, nil)
	random := rand.New(rand.NewPCG(uint64(value), 0))
	for {
		value++
		step := value
		if strings.HasPrefix(mode, "replace") {
			step = 7
		}
		s, err := makeState(step, float32(value), crashSize)
		if err != nil {
			return err
		}
		var parts []string
		if strings.HasSuffix(mode, "in parts") {
			if parts, err = writeParts(vfs.At(dir), s, 3, uint32(value), random); err != nil {
				return err
			}
			s.Tensors = nil
		}
		if err := keeper.Save(context.Background(), s, parts...); err != nil {
			return err
		}
		fmt.Println(value)
		if err := keeper.Prune(); err != nil {
			return err
		}
	}
}

func TestKillAtAnyMoment(t *testing.T) {
	testlevel.Long(t, "starts and kills processes")
	for _, mode := range []string{"advance", "replace", "advance in parts", "replace in parts"} {
		t.Run(mode, func(t *testing.T) {
			dir := t.TempDir()
			random := rand.New(rand.NewPCG(1, 2))
			interrupted := 0
			for round := range 15 {
				saved := runAndKill(t, dir, mode, time.Duration(random.Int64N(int64(40*time.Millisecond))))
				if hidden, err := filepath.Glob(filepath.Join(dir, ".step-*")); err != nil {
					t.Fatal(err)
				} else if len(hidden) > 0 {
					interrupted++
				}
				checkAfterKill(t, dir, round, saved)
			}
			t.Logf("%d of 15 kills fell into a Save", interrupted)
		})
	}
}

// runAndKill starts saveForever, waits until it has saved once and then for delay, kills it, and
// returns the last value that it reported as saved.
func runAndKill(t *testing.T, dir, mode string, delay time.Duration) int {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashDirEnv+"="+dir, crashModeEnv+"="+mode)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	saved := 0
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		value, err := strconv.Atoi(lines.Text())
		if err != nil {
			break // a line truncated by the kill
		}
		if saved == 0 {
			time.AfterFunc(delay, func() { _ = cmd.Process.Kill() })
		}
		saved = value
	}
	if err := cmd.Wait(); err == nil || saved == 0 || stderr.Len() > 0 {
		t.Fatalf("the process was not killed while saving: %v, %d saved, %s", err, saved, &stderr)
	}
	return saved
}

// checkAfterKill checks that every checkpoint in dir is complete and that the newest is at least as
// new as the last one that was reported as saved.
func checkAfterKill(t *testing.T, dir string, round, saved int) {
	t.Helper()
	entries, err := checkpoint.List(vfs.At(dir))
	if err != nil {
		t.Fatal(err)
	}
	newest := 0
	for _, entry := range entries {
		s, err := load(t, entry.Path)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		var value int
		if err := s.Meta.Get("value", &value); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for name, values := range values(t, s.State) {
			if len(values) != crashSize {
				t.Fatalf("round %d: %d values", round, len(values))
			}
			for _, v := range values {
				if v != float32(value) {
					t.Fatalf("round %d: tensor %s of value %d holds %v", round, name, value, v)
				}
			}
		}
		newest = max(newest, value)
	}
	if newest < saved {
		t.Errorf("round %d: the newest checkpoint holds %d, but %d was reported as saved", round, newest,
			saved)
	}
}
