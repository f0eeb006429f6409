package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/cage-qat/cage/internal/plainjson"
)

// A file is: the header's length (8 bytes, little-endian), the header (JSON,
// padded with spaces so that the data starts at a multiple of 8), the data.
//
// In the header, the entry "__metadata__" maps text to text. Two of its entries are the
// digests (see [HeaderDigestKey]); the others are from the caller.

const (
	lengthSize    = 8
	headerAlign   = 8
	maxHeaderSize = 100_000_000 // the limit of the reference implementation
	metadataKey   = "__metadata__"
)

// Info describes a tensor in a file, without its data.
type Info struct {
	Name       string
	DType      DType
	Shape      []int
	Begin, End int64 // byte range within the data, after the header
}

// jsonInfo is the form of Info in the header.
type jsonInfo struct {
	DType   DType    `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets []uint64 `json:"data_offsets"`
}

// header is the decoded and checked header of a file.
type header struct {
	metadata map[string]string // without the digests
	infos    []Info            // in the order of the data
	digests
}

// encode returns the header preceded by its length. The tensors appear in the order of infos, after
// the metadata in the order of its keys. Duplicate names and invalid UTF-8 are errors.
func (h header) encode() ([]byte, error) {
	var buf bytes.Buffer
	buf.Write(make([]byte, lengthSize))
	enc := jsontext.NewEncoder(&buf)
	list, err := json.Marshal(h.ofTensors, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("tensor names: %w", err)
	}
	metadata := map[string]string{HeaderDigestKey: h.ofHeader, TensorDigestsKey: string(list)}
	maps.Copy(metadata, h.metadata)
	err = errors.Join(enc.WriteToken(jsontext.BeginObject),
		enc.WriteToken(jsontext.String(metadataKey)))
	if err != nil {
		return nil, err
	}
	if err := json.MarshalEncode(enc, metadata, json.Deterministic(true)); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	for _, info := range h.infos {
		if err := enc.WriteToken(jsontext.String(info.Name)); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", info.Name, err)
		}
		shape := info.Shape
		if shape == nil {
			shape = []int{} // null is not a shape
		}
		entry := jsonInfo{info.DType, shape, []uint64{uint64(info.Begin), uint64(info.End)}}
		if err := json.MarshalEncode(enc, entry); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", info.Name, err)
		}
	}
	if err := enc.WriteToken(jsontext.EndObject); err != nil {
		return nil, err
	}
	buf.Truncate(len(bytes.TrimRight(buf.Bytes(), "\n")))
	for buf.Len()%headerAlign != 0 {
		buf.WriteByte(' ')
	}
	size := buf.Len() - lengthSize
	if size > maxHeaderSize {
		return nil, fmt.Errorf("header of %d bytes, want at most %d", size, maxHeaderSize)
	}
	binary.LittleEndian.PutUint64(buf.Bytes(), uint64(size))
	return buf.Bytes(), nil
}

// parseHeader decodes the JSON of a header and checks it against the size of
// the data that follows it.
func parseHeader(text []byte, dataSize int64) (header, error) {
	if len(text) == 0 || text[0] != '{' {
		return header{}, errors.New("the header does not start with {")
	}
	var fields map[string]jsontext.Value // duplicate names are an error of json/v2
	if err := json.Unmarshal(bytes.TrimRight(text, " "), &fields); err != nil {
		return header{}, fmt.Errorf("header: %w", plainjson.Explain(text, err))
	}
	var h header
	for name, value := range fields {
		if name == metadataKey {
			if err := json.Unmarshal(value, &h.metadata); err != nil {
				return header{}, fmt.Errorf("metadata: %w", plainjson.Explain(nil, err))
			}
			continue
		}
		info, err := parseInfo(name, value, dataSize)
		if err != nil {
			return header{}, fmt.Errorf("tensor %q: %w", name, err)
		}
		h.infos = append(h.infos, info)
	}
	slices.SortFunc(h.infos, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.End, b.End),
			cmp.Compare(a.Name, b.Name))
	})
	// The ordered tensors must cover the data without a gap or an overlap, so that every byte of a
	// file belongs to one.
	var end int64
	for _, info := range h.infos {
		switch {
		case info.Begin < end:
			return header{}, fmt.Errorf("tensor %q overlaps another one at byte %d", info.Name, info.Begin)
		case info.Begin > end:
			return header{}, fmt.Errorf("gap of %d bytes before tensor %q", info.Begin-end, info.Name)
		}
		end = info.End
	}
	if end != dataSize {
		return header{}, fmt.Errorf("%d bytes of data belong to no tensor", dataSize-end)
	}
	var err error
	if h.digests, err = extractDigests(h.metadata); err != nil {
		return header{}, fmt.Errorf("metadata: %w", err)
	}
	if h.ofTensors == nil {
		return h, nil
	}
	for _, info := range h.infos {
		if h.ofTensors[info.Name] == "" {
			return header{}, fmt.Errorf("metadata: %s lacks tensor %q", TensorDigestsKey, info.Name)
		}
	}
	if len(h.ofTensors) != len(h.infos) {
		return header{}, fmt.Errorf("metadata: %s has %d digests, but the file has %d tensors",
			TensorDigestsKey, len(h.ofTensors), len(h.infos))
	}
	return h, nil
}

func parseInfo(name string, value jsontext.Value, dataSize int64) (Info, error) {
	if name == "" {
		return Info{}, errors.New("has no name")
	}
	var entry jsonInfo
	if err := json.Unmarshal(value, &entry, json.RejectUnknownMembers(true)); err != nil {
		return Info{}, plainjson.Explain(nil, err)
	}
	if entry.DType.Bits() == 0 {
		return Info{}, fmt.Errorf("unknown element type %q", entry.DType)
	}
	if entry.Shape == nil {
		return Info{}, errors.New("has no shape")
	}
	n, err := elements(entry.Shape)
	if err != nil {
		return Info{}, err
	}
	if len(entry.Offsets) != 2 {
		return Info{}, fmt.Errorf("%d data offsets, want 2", len(entry.Offsets))
	}
	begin, end := entry.Offsets[0], entry.Offsets[1]
	if begin > end || end > uint64(dataSize) {
		return Info{}, fmt.Errorf("data offsets [%d, %d] outside the %d bytes of data", begin, end,
			dataSize)
	}
	want, err := entry.DType.size(n)
	if err != nil {
		return Info{}, fmt.Errorf("shape %v: %w", entry.Shape, err)
	}
	if length := end - begin; length != uint64(want) {
		return Info{}, fmt.Errorf("%d bytes of data for shape %v of %s, want %d", length, entry.Shape,
			entry.DType, want)
	}
	return Info{Name: name, DType: entry.DType, Shape: entry.Shape, Begin: int64(begin),
		End: int64(end)}, nil
}

// DType is the type of a tensor's elements, as spelled in the format.
type DType string

// Element types of the format. Types with a Go counterpart can be converted (see Values); others
// are handled as raw bytes.
const (
	U8     DType = "U8"
	I8     DType = "I8"
	F8E4M3 DType = "F8_E4M3"
	U16    DType = "U16"
	I16    DType = "I16"
	F16    DType = "F16"
	BF16   DType = "BF16"
	U32    DType = "U32"
	I32    DType = "I32"
	F32    DType = "F32"
	U64    DType = "U64"
	I64    DType = "I64"
	F64    DType = "F64"
)

// bits holds the sizes of elements. C64 is a complex number of two float32.
var bits = map[DType]int{
	"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
	"BOOL": 8, U8: 8, I8: 8, F8E4M3: 8, "F8_E5M2": 8, "F8_E8M0": 8,
	"F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
	U16: 16, I16: 16, F16: 16, BF16: 16,
	U32: 32, I32: 32, F32: 32,
	U64: 64, I64: 64, F64: 64, "C64": 64,
}

// Bits returns the number of bits in one element, or 0 for an unknown type.
func (d DType) Bits() int { return bits[d] }

// size returns the number of bytes of n elements, which are packed without gaps. They must fill
// whole bytes.
func (d DType) size(n int) (int64, error) {
	if d.Bits() == 0 {
		return 0, fmt.Errorf("unknown element type %q", d)
	}
	if n > math.MaxInt/d.Bits() {
		return 0, fmt.Errorf("too many elements of %d bits: %d", d.Bits(), n)
	}
	total := n * d.Bits()
	if total%8 != 0 {
		return 0, fmt.Errorf("%d elements of %d bits do not fill whole bytes", n, d.Bits())
	}
	return int64(total / 8), nil
}
