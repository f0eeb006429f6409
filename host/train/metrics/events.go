package metrics

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cage-qat/cage/internal/vfs"
)

// EventFile appends the numbers of records to a TensorBoard event file. Each event is written with
// one system call, so that if the process is killed, at most the last event is incomplete, which
// readers ignore. It is not safe for concurrent use.
type EventFile struct {
	f    vfs.File
	path vfs.Path
}

// CreateEvents creates dir and a new event file in it, named after the time. The file makes readers
// drop steps after the given one from older files, because a resumed run writes them again.
func CreateEvents(dir vfs.Path, step int, at time.Time) (*EventFile, error) {
	if err := dir.MkdirAll(); err != nil {
		return nil, err
	}
	// Readers read the files of a directory in the order of their names. The new name must sort
	// last even if another was created in the same second or the clock was set back.
	second := at.Unix()
	others, err := dir.ReadDir()
	if err != nil {
		return nil, err
	}
	for _, other := range others {
		var its int64
		if n, _ := fmt.Sscanf(other.Name(), "events.out.tfevents.%d.", &its); n == 1 {
			second = max(second, its+1)
		}
	}
	path := dir.Join(fmt.Sprintf("events.out.tfevents.%010d.000.cage", second))
	f, err := path.OpenFile(os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	w := &EventFile{f: f, path: path}
	first := message(nil).double(eventWallTime, seconds(at)).text(eventFileVersion, fileVersion)
	start := event(step+1, at).message(eventSessionLog, message(nil).int(sessionStatus, sessionStart))
	if err := errors.Join(w.put(first), w.put(start)); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (w *EventFile) put(e message) error {
	if _, err := w.f.Write(frame(e)); err != nil {
		return fmt.Errorf("%s: %w", w.path, err)
	}
	return nil
}

// Write appends the numbers of a record.
func (w *EventFile) Write(r Record, at time.Time) error {
	var summary message
	for _, v := range r.Values() {
		if v.Name != "step" {
			value := message(nil).text(valueTag, tagOf(v.Name)).float(valueSimpleValue, float32(v.Number))
			summary = summary.message(summaryValue, value)
		}
	}
	return w.put(event(r.Step, at).message(eventSummary, summary))
}

// Close closes the file.
func (w *EventFile) Close() error {
	if err := w.f.Close(); err != nil {
		return fmt.Errorf("%s: %w", w.path, err)
	}
	return nil
}

// Field numbers of TensorFlow's messages, from event.proto and summary.proto of
// github.com/tensorflow/tensorflow (tensorflow/core/framework and tensorflow/core/util).
const (
	eventWallTime    protowire.Number = 1 // double, seconds since 1970
	eventStep        protowire.Number = 2 // int64
	eventFileVersion protowire.Number = 3 // string, in the first event of a file
	eventSummary     protowire.Number = 5 // Summary
	eventSessionLog  protowire.Number = 7 // SessionLog

	summaryValue protowire.Number = 1 // repeated Value

	valueTag         protowire.Number = 1 // string
	valueSimpleValue protowire.Number = 2 // float

	sessionStatus protowire.Number = 1 // enum

	sessionStart = 1 // SessionStatus
)

// fileVersion is the format version in the first event of each file.
const fileVersion = "brain.Event:2"

type message []byte

func (m message) double(field protowire.Number, x float64) message {
	m = protowire.AppendTag(m, field, protowire.Fixed64Type)
	return protowire.AppendFixed64(m, math.Float64bits(x))
}

func (m message) float(field protowire.Number, x float32) message {
	m = protowire.AppendTag(m, field, protowire.Fixed32Type)
	return protowire.AppendFixed32(m, math.Float32bits(x))
}

func (m message) int(field protowire.Number, n int64) message {
	return protowire.AppendVarint(protowire.AppendTag(m, field, protowire.VarintType), uint64(n))
}

func (m message) text(field protowire.Number, text string) message {
	return protowire.AppendString(protowire.AppendTag(m, field, protowire.BytesType), text)
}

func (m message) message(field protowire.Number, part message) message {
	return protowire.AppendBytes(protowire.AppendTag(m, field, protowire.BytesType), part)
}

func event(step int, at time.Time) message {
	return message(nil).double(eventWallTime, seconds(at)).int(eventStep, int64(step))
}

func seconds(at time.Time) float64 { return float64(at.UnixNano()) / 1e9 }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked returns the masked CRC-32C that TFRecord uses as its checksum (tsl/lib/hash/crc32c.h).
func masked(data []byte) uint32 {
	sum := crc32.Checksum(data, castagnoli)
	return (sum>>15 | sum<<17) + 0xa282ead8
}

// frame encodes an event as a TFRecord: its length and its bytes, each followed by a checksum.
func frame(event message) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(event)))
	out = binary.LittleEndian.AppendUint32(out, masked(out))
	out = append(out, event...)
	return binary.LittleEndian.AppendUint32(out, masked(event))
}

// tagOf returns the TensorBoard tag of a number. It is other/NAME if names has none.
func tagOf(name string) string {
	if weight, ok := strings.CutPrefix(name, "weights."); ok {
		dot := strings.LastIndexByte(weight, '.')
		_, short, _ := strings.Cut(tagOf(weight[dot+1:]), "/")
		return "weights, " + short + "/" + weight[:dot]
	}
	return cmp.Or(names[name].tag, "other/"+name)
}
