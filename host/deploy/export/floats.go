package export

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/cage-qat/cage/internal/digest"
	"github.com/cage-qat/cage/internal/halffloat"
	"github.com/cage-qat/cage/internal/lists"
)

// Values of [Options].Float.
const (
	floatF32  = "f32"
	floatBF16 = "bf16"
	floatF16  = "f16"
)

var floatTypes = []string{floatF32, floatBF16, floatF16}

func checkFloat(typ string) (string, error) {
	if typ == "" {
		return floatF32, nil
	}
	if !slices.Contains(floatTypes, typ) {
		return "", fmt.Errorf("there is no float type %q: want one of f32, bf16, f16", typ)
	}
	return typ, nil
}

func holds(typ string, values []float32) bool {
	for _, v := range values {
		bits := math.Float32bits(v)
		if typ == floatBF16 && bits&0xffff != 0 || typ == floatF16 && !isHalf(v, false) {
			return false
		}
	}
	return true
}

func writeFloats(w io.Writer, typ string, values []float32) error {
	var data []byte
	for part := range slices.Chunk(values, 1<<14) {
		data = data[:0]
		for _, v := range part {
			switch typ {
			case floatF32:
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
			case floatBF16:
				data = binary.LittleEndian.AppendUint16(data, halffloat.ToBFloat16(v))
			case floatF16:
				data = binary.LittleEndian.AppendUint16(data, halffloat.ToHalf(v))
			}
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	return nil
}

// sumOf returns a digest of values, in which −0 counts as 0.
func sumOf(values []float32) [sha256.Size]byte {
	h := digest.New()
	for part := range slices.Chunk(values, 1<<14) {
		withoutSign := func(v float32) float32 { return v + 0 }
		_ = writeFloats(h, floatF32, lists.Map(part, withoutSign)) // a hash has no errors
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// checkFloats returns an error if typ does not represent all values exactly or, if inexact is set,
// if a value would become infinite.
func checkFloats(typ string, values []float32, inexact bool) error {
	if !inexact && !holds(typ, values) {
		return errors.New("the type does not represent all values exactly")
	}
	return checkFits(typ, values)
}

// checkFits returns an error if a value would become infinite in typ.
func checkFits(typ string, values []float32) error {
	limit := 65520.0 // of half floats
	switch typ {
	case typeQ8:
		limit *= 127
	case floatF16:
	default:
		return nil // bfloat16 has the range of float32, except for the last half step
	}
	for _, v := range values {
		if !(math.Abs(float64(v)) < limit) {
			return fmt.Errorf("the value %v is beyond the range of %s", v, typ)
		}
	}
	return nil
}
