package plugin

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func init() { assault, spoil = assaultShared, spoilShared }

// openShared opens the memory that this process shares with its host, as any process of the user
// can.
func openShared() (*os.File, int64, error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, 0, err
	}
	line := regexp.MustCompile(`(?m)^.* (\d+) +/memfd:cage \(deleted\)$`).FindSubmatch(maps)
	if line == nil {
		return nil, 0, errors.New("no shared memory is mapped")
	}
	paths, err := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || fmt.Sprint(info.Sys().(*syscall.Stat_t).Ino) != string(line[1]) {
			continue
		}
		if to, _ := os.Readlink(path); to != "/memfd:cage (deleted)" {
			continue
		}
		if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
			return f, info.Size(), nil
		}
	}
	return nil, 0, errors.Join(errors.New("the shared memory is not found"), err)
}

// assaultShared attacks the memory that this process shares with its host: it fills the memory with
// NaN and frees every other page. It must not be able to truncate, extend or remove the memory, or
// to forbid the host to write.
func assaultShared() error {
	f, size, err := openShared()
	if err != nil {
		return err
	}
	defer f.Close()
	if err := fill(f, size, math.Float32bits(float32(math.NaN()))); err != nil {
		return err
	}
	page := int64(os.Getpagesize())
	for at := page; at < size; at += 2 * page {
		if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at,
			page); err != nil {
			return err
		}
	}
	_, sealed := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE)
	for _, err := range []error{f.Truncate(0), f.Truncate(2 * size), os.Remove(f.Name()), sealed} {
		if err == nil {
			return errors.New("what must be forbidden has succeeded")
		}
	}
	return nil
}

// spoilShared overwrites all numbers in the shared memory with a plausible one.
func spoilShared() error {
	f, size, err := openShared()
	if err != nil {
		return err
	}
	return errors.Join(fill(f, size, math.Float32bits(0.125)), f.Close())
}

func fill(f *os.File, size int64, bits uint32) error {
	_, err := f.WriteAt(bytes.Repeat(binary.LittleEndian.AppendUint32(nil, bits), int(size/4)), 0)
	return err
}

// Files in the directory "once", with which a test and a plugin that writes late wait for each
// other.
const (
	answered  = "answered"
	assaulted = "assaulted"
)

// assaultAnswered lets a plugin that writes late attack the shared memory after its answer, and
// waits until it has.
func assaultAnswered(t *testing.T, dir string, memory *sharedMemory) {
	t.Helper()
	before := content(t, memory)
	if err := os.Mkdir(filepath.Join(dir, answered), 0o700); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		switch text, err := os.ReadFile(filepath.Join(dir, assaulted)); {
		case err != nil && time.Since(began) < 10*time.Second:
			continue
		case err != nil || len(text) > 0:
			t.Fatalf("%v; the plugin says %q", err, text)
		}
		break
	}
	if bytes.Equal(before, content(t, memory)) {
		t.Fatal("the plugin has changed nothing in the shared memory")
	}
}

func content(t *testing.T, memory *sharedMemory) []byte {
	t.Helper()
	data, err := io.ReadAll(io.NewSectionReader(memory.file, 0, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestOpaqueWritesLate checks that writes of a plugin to the shared memory after its answer change
// neither the answer nor the inputs of the next step.
func TestOpaqueWritesLate(t *testing.T) {
	dir := t.TempDir()
	s := stepper(t, map[string]any{"do": "late", "once": dir})
	for step := 1; step <= 3; step++ {
		for _, name := range []string{"a", "b"} {
			b := buffersOf(s, name)
			for i := range b.x {
				b.x[i], b.gradient[i] = 1, float32(step)
			}
			copy(b.state, b.next)
		}
		if err := s.Step(step, 3, 0.1, 2); err != nil {
			t.Fatal(err)
		}
		if step == 2 {
			assaultAnswered(t, dir, s.memory)
		}
		for _, name := range []string{"a", "b"} {
			b := buffersOf(s, name)
			for i, u := range b.direction {
				if sum := float32(step * (step + 1) / 2); u != sum || b.next[i] != sum ||
					b.x[i] != 1 || b.gradient[i] != float32(step) {
					t.Errorf("step %d: element %d of %s: u = %v, s = %v, x = %v, g = %v", step, i, name, u,
						b.next[i], b.x[i], b.gradient[i])
				}
			}
		}
	}
}

// TestSearchWritesLate checks the same as TestOpaqueWritesLate for a search.
func TestSearchWritesLate(t *testing.T) {
	dir := t.TempDir()
	s := searcher(t, map[string]any{"do": "late", "once": dir})
	found, err := threeSearches(t, s, func(step int) {
		if step == 2 {
			assaultAnswered(t, dir, s.memory)
		}
	})
	if want := []float32{6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 303}; err != nil ||
		fmt.Sprint(found) != fmt.Sprint(want) {
		t.Errorf("got %v, %v, want %v", found, err, want)
	}
}
