package tensorboard

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

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

// scalar is a value of a summary.
func scalar(s Scalar) message {
	return message(nil).text(valueTag, s.Tag).float(valueSimpleValue, float32(s.Value))
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
