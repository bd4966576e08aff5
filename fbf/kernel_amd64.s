//go:build !purego

#include "go_asm.h"
#include "textflag.h"

// The kernels work on groups of four strips. Registers throughout:
//
//	DI  address of the segment's lines   R13  strip, R14  strips left
//	R8  the id's hash                    CX   index of the strip's first line
//	SI  probes, at the group             BX   probe keys, at the group
//	R9..R12  probe hashes, then the addresses of the lines
//	Y0  all ones   Y1, Y2  lanes 0..3 and 4..7 of what the lines have in common
//	Y12 ones       Y13  63          X11  shift of the fifth position
//	Y8  the group's four masks

DATA one<>+0(SB)/8, $1
GLOBL one<>(SB), RODATA|NOPTR, $8
DATA low6<>+0(SB)/8, $63
GLOBL low6<>(SB), RODATA|NOPTR, $8

#define LOAD \
	MOVQ         s+0(FP), AX; \
	MOVQ         h+8(FP), R8; \
	MOVQ         p+16(FP), SI; \
	LEAQ         ·probeKeys(SB), BX; \
	MOVQ         segment_lines(AX), DI; \
	MOVQ         segment_strip(AX), R13; \
	MOVQ         (segment_geometry+geometry_s)(AX), R14; \
	VMOVQ        segment_fifth(AX), X11; \
	XORL         CX, CX; \
	VPBROADCASTQ one<>(SB), Y12; \
	VPBROADCASTQ low6<>(SB), Y13; \
	VPCMPEQD     Y0, Y0, Y0

// HASH is probeHash for strip i of the group.
#define HASH(i, x) \
	MOVQ  (16*i)(BX), DX; \
	XORQ  R8, DX; \
	MULXQ (16*i+8)(BX), AX, x; \
	XORQ  AX, x

// PLACE turns a probe hash into the line it chooses: index to p.at, address to x.
#define PLACE(i, x) \
	SHRQ  $32, x; \
	IMULQ R13, x; \
	SHRQ  $32, x; \
	ADDQ  CX, x; \
	ADDQ  R13, CX; \
	MOVQ  x, (probes_at+8*i)(SI); \
	SHLQ  $6, x; \
	ADDQ  DI, x

// MASKS is without for the four probe hashes in Y3.
#define MASKS \
	VPAND   Y13, Y3, Y4; \
	VPSRLQ  $6, Y3, Y5; \
	VPSRLQ  $12, Y3, Y6; \
	VPSRLQ  $18, Y3, Y7; \
	VPSRLQ  X11, Y3, Y8; \
	VPAND   Y13, Y5, Y5; \
	VPAND   Y13, Y6, Y6; \
	VPAND   Y13, Y7, Y7; \
	VPAND   Y13, Y8, Y8; \
	VPSLLVQ Y4, Y12, Y4; \
	VPSLLVQ Y5, Y12, Y5; \
	VPSLLVQ Y6, Y12, Y6; \
	VPSLLVQ Y7, Y12, Y7; \
	VPSLLVQ Y8, Y12, Y8; \
	VPOR    Y4, Y5, Y5; \
	VPOR    Y6, Y7, Y7; \
	VPOR    Y5, Y8, Y8; \
	VPOR    Y7, Y8, Y8; \
	VPXOR   Y0, Y8, Y8; \
	VMOVDQU Y8, probes_mask(SI)

// GROUP locates h in four strips. Those beyond S, in the last group, are located
// in vain: they are stored in p, but their addresses are not used.
#define GROUP \
	HASH(0, R9) \
	VMOVQ       R9, X3; \
	PLACE(0, R9) \
	HASH(1, R10) \
	VPINSRQ     $1, R10, X3, X3; \
	PLACE(1, R10) \
	HASH(2, R11) \
	VMOVQ       R11, X4; \
	PLACE(2, R11) \
	HASH(3, R12) \
	VPINSRQ     $1, R12, X4, X4; \
	PLACE(3, R12) \
	VINSERTI128 $1, X4, Y3, Y3; \
	MASKS

#define NEXTGROUP \
	ADDQ $64, BX; \
	ADDQ $32, SI; \
	SUBQ $4, R14

// TEST adds the line at x to what the lines have in common: a lane remains all
// ones as long as it has all bits asked for.
#define TEST(x, mask) \
	VPOR  (x), mask, Y4; \
	VPOR  32(x), mask, Y5; \
	VPAND Y4, Y1, Y1; \
	VPAND Y5, Y2, Y2

// ANSWER makes a bit of every lane.
#define ANSWER(ret) \
	VPCMPEQQ  Y0, Y1, Y1; \
	VPCMPEQQ  Y0, Y2, Y2; \
	VMOVMSKPD Y1, AX; \
	VMOVMSKPD Y2, DX; \
	SHLL      $4, DX; \
	ORL       DX, AX; \
	VZEROUPPER; \
	MOVB      AX, ret

// func probeAVX2(s *segment, h uint64, p *probes) uint8
TEXT ·probeAVX2(SB), NOSPLIT|NOFRAME, $0-25
	LOAD
	VMOVDQA Y0, Y1
	VMOVDQA Y0, Y2

group:
	GROUP
	VPBROADCASTQ X8, Y3
	TEST(R9, Y3)
	CMPQ   R14, $2
	JLT    done
	VPERMQ $0x55, Y8, Y3
	TEST(R10, Y3)
	JEQ    done
	VPERMQ $0xAA, Y8, Y3
	TEST(R11, Y3)
	CMPQ   R14, $4
	JLT    done
	VPERMQ $0xFF, Y8, Y3
	TEST(R12, Y3)
	NEXTGROUP
	JGT    group

done:
	ANSWER(ret+24(FP))
	RET

// func requestAVX2(s *segment, h uint64, p *probes)
TEXT ·requestAVX2(SB), NOSPLIT|NOFRAME, $0-24
	LOAD

group:
	GROUP
	PREFETCHT0 (R9)
	CMPQ       R14, $2
	JLT        done
	PREFETCHT0 (R10)
	JEQ        done
	PREFETCHT0 (R11)
	CMPQ       R14, $4
	JLT        done
	PREFETCHT0 (R12)
	NEXTGROUP
	JGT        group

done:
	VZEROUPPER
	RET

// func locatedAVX2(s *segment, p *probes) uint8
TEXT ·locatedAVX2(SB), NOSPLIT|NOFRAME, $0-17
	MOVQ     s+0(FP), AX
	MOVQ     p+8(FP), SI
	MOVQ     segment_lines(AX), DI
	MOVQ     (segment_geometry+geometry_s)(AX), CX
	VPCMPEQD Y0, Y0, Y0
	VMOVDQA  Y0, Y1
	VMOVDQA  Y0, Y2

line:
	MOVQ         probes_at(SI), R9
	VPBROADCASTQ probes_mask(SI), Y3
	SHLQ         $6, R9
	ADDQ         DI, R9
	TEST(R9, Y3)
	ADDQ         $8, SI
	DECQ         CX
	JNE          line
	ANSWER(ret+16(FP))
	RET
