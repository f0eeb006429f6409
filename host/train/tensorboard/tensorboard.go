// Package tensorboard writes event files, which TensorBoard and Weights & Biases can read. They hold the records of a
// run as scalars, and its configuration as a text.
//
// The package knows the format of these files and the names that the numbers of a record have there. It reads no such
// files. They are not the only copy of anything: they can be made again from metrics.jsonl at any time.
package tensorboard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/vfs"
)

// Scalar is one number under its tag, "group/name".
type Scalar struct {
	Tag   string
	Value float64
}

// Writer appends events to a file. Each reaches the operating system in one write, so that a killed process leaves at
// most its last event incomplete, which readers ignore. It is not safe for concurrent use.
type Writer struct {
	f    vfs.File
	path vfs.Path
}

// Create creates dir and a new event file in it, named by the time. If older files in the directory have later steps
// than the given one, the run was resumed from a checkpoint: readers then drop these steps.
func Create(dir vfs.Path, step int, at time.Time) (*Writer, error) {
	if err := dir.MkdirAll(); err != nil {
		return nil, err
	}
	w, err := create(dir, at)
	if err != nil {
		return nil, err
	}
	first := message(nil).double(eventWallTime, float64(at.UnixNano())/1e9).text(eventFileVersion, fileVersion)
	start := event(step+1, at).message(eventSessionLog, message(nil).int(sessionStatus, sessionStart))
	if err := errors.Join(w.put(first), w.put(start)); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// create opens a file that was not there. Readers take the files of a directory in the order of their names, so it comes
// after all others, also where the clock was set back or is that of another machine.
func create(dir vfs.Path, at time.Time) (*Writer, error) {
	second := at.Unix()
	others, err := dir.ReadDir()
	if err != nil {
		return nil, err
	}
	for _, other := range others {
		var its int64
		if n, _ := fmt.Sscanf(other.Name(), "events.out.tfevents.%d.", &its); n == 1 {
			second = max(second, its)
		}
	}
	for attempt := range 1000 {
		path := dir.Join(fmt.Sprintf("events.out.tfevents.%010d.%03d.cage", second, attempt))
		f, err := path.OpenFile(os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o644)
		if err == nil {
			return &Writer{f: f, path: path}, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s has too many event files of one second", dir)
}

func (w *Writer) put(e message) error {
	if _, err := w.f.Write(frame(e)); err != nil {
		return fmt.Errorf("%s: %w", w.path, err)
	}
	return nil
}

// Scalars appends the numbers of a step.
func (w *Writer) Scalars(step int, at time.Time, list []Scalar) error {
	var summary message
	for _, s := range list {
		summary = summary.message(summaryValue, message(nil).text(valueTag, s.Tag).float(valueSimpleValue, float32(s.Value)))
	}
	return w.put(event(step, at).message(eventSummary, summary))
}

// Configuration appends the configuration of a run, in TOML, as a block of code in Markdown.
func (w *Writer) Configuration(toml string, at time.Time) error {
	code := "    " + strings.ReplaceAll(strings.TrimRight(toml, "\n"), "\n", "\n    ") + "\n"
	return w.put(event(0, at).message(eventSummary, message(nil).message(summaryValue, text("configuration", code))))
}

// Close closes the file.
func (w *Writer) Close() error {
	if err := w.f.Close(); err != nil {
		return fmt.Errorf("%s: %w", w.path, err)
	}
	return nil
}

// Discard closes the file and removes it.
func (w *Writer) Discard() error { return errors.Join(w.Close(), w.path.Remove()) }

// The fields of TensorFlow's messages that are written here, by their numbers in event.proto, summary.proto, tensor.proto and
// types.proto of github.com/tensorflow/tensorflow (tensorflow/core/framework and tensorflow/core/util).
const (
	eventWallTime    protowire.Number = 1 // double, seconds since 1970
	eventStep        protowire.Number = 2 // int64
	eventFileVersion protowire.Number = 3 // string, in the first event of a file
	eventSummary     protowire.Number = 5 // Summary
	eventSessionLog  protowire.Number = 7 // SessionLog

	summaryValue protowire.Number = 1 // repeated Value

	valueTag         protowire.Number = 1 // string
	valueSimpleValue protowire.Number = 2 // float
	valueTensor      protowire.Number = 8 // TensorProto
	valueMetadata    protowire.Number = 9 // SummaryMetadata

	metadataPlugin protowire.Number = 1 // PluginData
	pluginName     protowire.Number = 1 // string

	tensorType   protowire.Number = 1 // DataType
	tensorShape  protowire.Number = 2 // TensorShapeProto
	tensorString protowire.Number = 8 // repeated bytes
	shapeDim     protowire.Number = 2 // repeated Dim
	dimSize      protowire.Number = 1 // int64

	sessionStatus protowire.Number = 1 // enum

	typeString   = 7 // DataType
	sessionStart = 1 // SessionStatus
)

// fileVersion is that of the format, in the first event of each file.
const fileVersion = "brain.Event:2"

// message is an encoded message that grows field by field.
type message []byte

func (m message) double(field protowire.Number, x float64) message {
	return protowire.AppendFixed64(protowire.AppendTag(m, field, protowire.Fixed64Type), math.Float64bits(x))
}

func (m message) float(field protowire.Number, x float32) message {
	return protowire.AppendFixed32(protowire.AppendTag(m, field, protowire.Fixed32Type), math.Float32bits(x))
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

// event is what all events have.
func event(step int, at time.Time) message {
	return message(nil).double(eventWallTime, float64(at.UnixNano())/1e9).int(eventStep, int64(step))
}

// text is a value of a summary for the text plugin: a tensor of one string.
func text(tag, content string) message {
	one := message(nil).message(shapeDim, message(nil).int(dimSize, 1))
	tensor := message(nil).int(tensorType, typeString).message(tensorShape, one).text(tensorString, content)
	metadata := message(nil).message(metadataPlugin, message(nil).text(pluginName, "text"))
	return message(nil).text(valueTag, tag).message(valueTensor, tensor).message(valueMetadata, metadata)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked is the checksum of the format: CRC-32C, turned and shifted (tsl/lib/hash/crc32c.h).
func masked(data []byte) uint32 {
	sum := crc32.Checksum(data, castagnoli)
	return (sum>>15 | sum<<17) + 0xa282ead8
}

// frame is an event as it stands in a file: its length with a checksum, and itself with one (TFRecord).
func frame(event message) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(event)))
	out = binary.LittleEndian.AppendUint32(out, masked(out))
	out = append(out, event...)
	return binary.LittleEndian.AppendUint32(out, masked(event))
}

// tags are the names that the numbers of a record have in TensorBoard, which draws those of a group together. Those that are
// not here keep their name, in the group "other".
var tags = map[string]string{
	"loss":              "train/loss",
	"lr":                "train/learning rate",
	"divergence":        "train/divergence from the teacher",
	"cross_entropy":     "train/cross-entropy",
	"grad_norm":         "train/gradient norm",
	"distance":          "train/distance to the optimum",
	"skipped":           "train/skipped steps",
	"val_loss":          "validation/loss",
	"val_ppl":           "validation/perplexity",
	"tokens":            "speed/tokens",
	"tokens_per_second": "speed/tokens per second",
	"flops_per_second":  "speed/model FLOP per second",
	"mfu":               "speed/model FLOP utilization",
	"memory_bytes":      "speed/memory, bytes",
	"seconds":           "speed/seconds",
	"lambda":            "correction/λ",
	"strength":          "correction/strength of the method",
	"avg_err_norm":      "correction/mean norm of x − Q(x)",
	"avg_corr_norm":     "correction/mean norm of λ(x − Q(x))",
	"applied_params":    "correction/weights corrected",
	"uncorrected":       "correction/weights left out",
	"pareto":            "correction/stationarity",
	"pareto_ste":        "correction/stationarity with the gradient at Q(x)",
	"error_norm2":       "quantization/error, squared",
	"error_rel":         "quantization/error, relative and squared",
	"flip_rate":         "codes/share that changed",
	"coherence":         "codes/coherence",
	"coherence_vector":  "codes/coherence of weights",
	"dwell_mean":        "codes/dwell time, mean",
	"dwell_median":      "codes/dwell time, median",
	"dwell_p90":         "codes/dwell time, ninth decile",
	"dwell_max":         "codes/dwell time, largest",
	"dwell_vector_mean": "codes/dwell time of weights, mean",
	"visits":            "codes/visits",
	"visit_sum":         "codes/largest sum of a visit",
	"residual_max":      "codes/largest residual",
}

// Of returns the numbers of a record as scalars. The names of those of single weights contain the name of the weight.
func Of(r metrics.Record) []Scalar {
	var list []Scalar
	for _, v := range r.Values() {
		if v.Name != "step" {
			list = append(list, Scalar{tagOf(v.Name), v.Number})
		}
	}
	return list
}

func tagOf(name string) string {
	if weight, ok := strings.CutPrefix(name, "weights."); ok {
		at := strings.LastIndexByte(weight, '.')
		_, short, _ := strings.Cut(tagOf(weight[at+1:]), "/")
		return "weights, " + short + "/" + weight[:at]
	}
	if tag, ok := tags[name]; ok {
		return tag
	}
	return "other/" + name
}
