package main

import (
	"bytes"
	"math"
	"strings"
	"syscall"
	"testing"

	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestCheckpointInParts checks that verify joins the parts of a tensor that several processes
// wrote, names a missing part, and does not report an unreadable checkpoint as damaged.
func TestCheckpointInParts(t *testing.T) {
	dir := vfs.At(t.TempDir())
	var names []string
	for i, rows := range []int{1, 2} {
		values := make([]float32, rows*2)
		values[rows] = float32(math.NaN())
		w, err := safetensors.New("param/w", []int{rows, 2}, values)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, checkpoint.PartName(5, i+1, 2, 7))
		if err := checkpoint.SavePart(t.Context(), dir, names[i], []safetensors.Tensor{w}); err != nil {
			t.Fatal(err)
		}
	}
	path, err := checkpoint.Save(t.Context(), dir, checkpoint.State{Step: 5}, names...)
	if err != nil {
		t.Fatal(err)
	}
	says := func(command, flag string, texts ...string) error {
		var out bytes.Buffer
		cmd := newRoot()
		cmd.SetArgs([]string{"checkpoint", command, path.Name, "--json=" + flag})
		cmd.SetOut(&out)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		err := cmd.Execute()
		for _, text := range texts {
			if !strings.Contains(out.String(), text) {
				t.Errorf("%s --json=%s does not say %q: %s", command, flag, text, &out)
			}
		}
		return err
	}
	if err := says("verify", "false", "intact: step 5, 1 tensors, ",
		"; a parameter is not finite"); err != nil {
		t.Error(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE,
		&syscall.Rlimit{Cur: 3, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	err = says("verify", "false", "too many open files", "raise the limit")
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err == nil || err.Error() != "1 of 1 checkpoints could not be read and may be intact" {
		t.Errorf("a checkpoint that cannot be read: %v", err)
	}
	if err := dir.Join(names[1]).Remove(); err != nil {
		t.Fatal(err)
	}
	if err := says("verify", "false", "its part \""+names[1]+"\" is missing"); err == nil {
		t.Error("a checkpoint without a part is intact")
	}
}
