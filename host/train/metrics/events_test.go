package metrics

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cage-qat/cage/internal/vfs"
)

// TestChecksum checks the CRC-32C of 32 zeros, 0x8a9136aa (RFC 3720, B.4), masked as in
// TensorFlow's crc32c.h.
func TestChecksum(t *testing.T) {
	sum := uint32(0x8a9136aa)
	if got, want := masked(make([]byte, 32)), (sum>>15|sum<<17)+0xa282ead8; got != want {
		t.Errorf("the checksum is %#x, want %#x", got, want)
	}
}

// events returns the events of a file, whose frames must be complete.
func events(t *testing.T, file string) (list [][]byte) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for len(data) > 0 {
		n := binary.LittleEndian.Uint64(data)
		if len(data) < int(n)+16 || binary.LittleEndian.Uint32(data[8:]) != masked(data[:8]) {
			t.Fatalf("%s: a length that its checksum does not fit", file)
		}
		event := data[12 : 12+n]
		if binary.LittleEndian.Uint32(data[12+n:]) != masked(event) {
			t.Fatalf("%s: an event that its checksum does not fit", file)
		}
		list, data = append(list, event), data[16+n:]
	}
	return list
}

// fields returns the fields of a message by number. The last of repeated fields counts.
func fields(t *testing.T, m []byte) map[protowire.Number]any {
	t.Helper()
	out := map[protowire.Number]any{}
	for len(m) > 0 {
		field, kind, n := protowire.ConsumeTag(m)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		m = m[n:]
		switch kind {
		case protowire.VarintType:
			out[field], n = protowire.ConsumeVarint(m)
		case protowire.Fixed32Type:
			out[field], n = protowire.ConsumeFixed32(m)
		case protowire.Fixed64Type:
			out[field], n = protowire.ConsumeFixed64(m)
		default:
			out[field], n = protowire.ConsumeBytes(m)
		}
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		m = m[n:]
	}
	return out
}

func TestEventFile(t *testing.T) {
	dir := vfs.At(filepath.Join(t.TempDir(), "events"))
	at := time.Unix(1700000000, 500_000_000)
	w, err := CreateEvents(dir, 7, at)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(Record{Step: 8, Loss: 2.5, ValLoss: Some(math.NaN())}, at); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	list := events(t, dir.Join("events.out.tfevents.1700000000.000.cage").Name)
	if len(list) != 3 {
		t.Fatalf("%d events, want 3", len(list))
	}
	first := fields(t, list[0])
	if string(first[eventFileVersion].([]byte)) != "brain.Event:2" ||
		math.Float64frombits(first[eventWallTime].(uint64)) != 1700000000.5 {
		t.Errorf("the first event is %v", first)
	}
	start := fields(t, list[1])
	if start[eventStep] != uint64(8) ||
		fields(t, start[eventSessionLog].([]byte))[sessionStatus] != uint64(1) {
		t.Errorf("readers forget nothing from step 8 on: %v", start)
	}
	numbers := fields(t, list[2])
	value := fields(t, fields(t, numbers[eventSummary].([]byte))[summaryValue].([]byte))
	if numbers[eventStep] != uint64(8) || string(value[valueTag].([]byte)) != "validation/loss" ||
		!math.IsNaN(float64(math.Float32frombits(value[valueSimpleValue].(uint32)))) {
		t.Errorf("the last number of step %v is %v", numbers[eventStep], value)
	}
}

// TestEventFileNames checks that files of the same second do not overwrite each other, and that
// their names are in the order of creation.
func TestEventFileNames(t *testing.T) {
	dir := vfs.At(t.TempDir())
	for _, at := range []int64{1700000000, 1700000000, 1700000001} {
		w, err := CreateEvents(dir, 0, time.Unix(at, 0))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
	}
	var names []string
	entries, err := dir.ReadDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := []string{"events.out.tfevents.1700000000.000.cage",
		"events.out.tfevents.1700000001.000.cage", "events.out.tfevents.1700000002.000.cage"}
	if !slices.Equal(names, want) {
		t.Errorf("the files are %v, want %v", names, want)
	}
}

// TestEventTags checks that every number of a record has a readable tag, and that tags are unique.
func TestEventTags(t *testing.T) {
	known := map[string]bool{}
	of := reflect.TypeFor[Record]()
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		known[name] = true
		if name == "step" || name == "weights" || name == "counts" { // not single numbers
			continue
		}
		if strings.HasPrefix(tagOf(name), "other/") {
			t.Errorf("%s has no name", name)
		}
	}
	seen := map[string]bool{}
	for name, n := range names {
		tag := n.tag
		if tag == "" {
			continue
		}
		if !known[name] {
			t.Errorf("records have no %s", name)
		}
		if seen[tag] {
			t.Errorf("%q names two numbers", tag)
		}
		seen[tag] = true
	}
	if got := tagOf("weights.layers.0.attn.qkv.flip_rate"); got != "weights, share that "+
		"changed/layers.0.attn.qkv" {
		t.Errorf("the flip rate of a weight is %q", got)
	}
}

// TestClockSetBack checks that the name of a new file sorts after the others even if the clock was
// set back.
func TestClockSetBack(t *testing.T) {
	dir := vfs.At(t.TempDir())
	at := time.Unix(1700000000, 0)
	for i, clock := range []time.Time{at, at.Add(-time.Hour), at.Add(-2 * time.Hour),
		at.Add(time.Hour)} {
		w, err := CreateEvents(dir, i, clock)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		files, err := dir.ReadDir() // sorted by name
		if err != nil || len(files) != i+1 || dir.Join(files[i].Name()) != w.path {
			t.Errorf("after %d others there are %v, %v, and the new one is %s", i, files, err, w.path)
		}
	}
}
