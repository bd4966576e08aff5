#include "textflag.h"

// func prefetchLines(lines unsafe.Pointer, at *uint64, n int)
TEXT ·prefetchLines(SB), NOSPLIT|NOFRAME, $0-24
	MOVQ lines+0(FP), DI
	MOVQ at+8(FP), SI
	MOVQ n+16(FP), CX
loop:
	SUBQ $1, CX
	JLT  done
	MOVQ (SI), AX
	SHLQ $6, AX
	PREFETCHT0 (DI)(AX*1)
	ADDQ $8, SI
	JMP  loop
done:
	RET
