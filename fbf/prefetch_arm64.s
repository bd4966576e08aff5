#include "textflag.h"

// func prefetchLines(lines unsafe.Pointer, at *uint64, n int)
TEXT ·prefetchLines(SB), NOSPLIT|NOFRAME, $0-24
	MOVD lines+0(FP), R0
	MOVD at+8(FP), R1
	MOVD n+16(FP), R2
loop:
	CBZ  R2, done
	MOVD.P 8(R1), R3
	ADD  R3<<6, R0, R4
	PRFM (R4), PLDL1KEEP
	SUB  $1, R2
	B    loop
done:
	RET
