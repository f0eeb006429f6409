// Package readback reads exported models and returns the numbers that their bytes stand
// for, by the rules of the formats. It was written from the descriptions of the formats
// and shares no code with what writes them (host/deploy/export, host/deploy/export/pack), so that it
// can check whether an export is what it should be.
package readback
