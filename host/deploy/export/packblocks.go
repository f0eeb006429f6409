package export

import (
	"encoding/binary"
	"fmt"
	"math"
)

const blockSize = 32

// packQ8_0 appends a block of 32 codes −128…127 and their scale: the scale as a half float, then
// one byte per code.
func packQ8_0(dst []byte, codes []int32, scale float32) ([]byte, error) {
	if len(codes) != blockSize {
		return nil, errLength(codes)
	}
	dst, err := withHalf(dst, scale)
	if err != nil {
		return nil, err
	}
	for i, code := range codes {
		if code < math.MinInt8 || code > math.MaxInt8 {
			return nil, fmt.Errorf("the code %d at %d does not fit into 8 bits", code, i)
		}
		dst = append(dst, byte(code))
	}
	return dst, nil
}

// packQ4_0 appends a block of 32 codes −8…7 and their scale: the scale as a half float, then
// the codes plus 8.
func packQ4_0(dst []byte, codes []int32, scale float32) ([]byte, error) {
	dst, err := withHalf(dst, scale)
	if err != nil {
		return nil, err
	}
	return nibbles(dst, codes, 8)
}

// packQ4_1 appends a block of 32 codes 0…15 with the values code·scale + minimum: scale and minimum
// as half floats, then the codes.
func packQ4_1(dst []byte, codes []int32, scale, minimum float32) ([]byte, error) {
	dst, err := withHalf(dst, scale)
	if err != nil {
		return nil, err
	}
	if dst, err = withHalf(dst, minimum); err != nil {
		return nil, err
	}
	return nibbles(dst, codes, 0)
}

// packMXFP4 appends a block of 32 codes of E2M1 and a scale that is a power of two: its exponent
// plus 127, then the codes.
func packMXFP4(dst []byte, codes []int32, scale float32) ([]byte, error) {
	exponent, ok := codeE8M0(scale)
	if !ok {
		return nil, fmt.Errorf("the scale %v is no power of two from 2^-127 to 2^127", scale)
	}
	return nibbles(append(dst, exponent), codes, 0)
}

func withHalf(dst []byte, v float32) ([]byte, error) {
	bits, ok := exactF16(v)
	if !ok {
		return nil, fmt.Errorf("the scale %v is no half float", v)
	}
	return binary.LittleEndian.AppendUint16(dst, bits), nil
}

// nibbles appends 32 codes plus an offset, 0…15: byte j has element j in its low four bits and
// element j+16 in its high four bits.
func nibbles(dst []byte, codes []int32, offset int32) ([]byte, error) {
	if len(codes) != blockSize {
		return nil, errLength(codes)
	}
	for i, code := range codes {
		if code += offset; code < 0 || code > 15 {
			return nil, fmt.Errorf("the code %d at %d does not fit into 4 bits", codes[i], i)
		}
	}
	for j := range blockSize / 2 {
		dst = append(dst, byte(codes[j]+offset)|byte(codes[j+blockSize/2]+offset)<<4)
	}
	return dst, nil
}

func errLength(codes []int32) error {
	return fmt.Errorf("%d codes, want blocks of %d", len(codes), blockSize)
}
