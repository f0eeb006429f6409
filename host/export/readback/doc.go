// Package readback reads exported models and returns the numbers that their bytes stand
// for, by the rules of the formats. It was written from the descriptions of the formats and
// shares no code with what writes them (host/export, host/export/pack), so that an export
// can be held to what it was to be.
package readback
