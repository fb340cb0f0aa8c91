"""The numbers that decide verdicts: thresholds, factors, distances and counts of points.

Sizes that change what a check costs and no verdict stand in `adjudge.limits`, and facts of
floating-point formats in `adjudge.floats`.
"""

# ---- Steps of differences

LONGEST_STEP = 0.25
"""The longest step of the ladder, relative to the scale of x. Over longer ones most functions are
no polynomial any more, and the coarse windows are wasted. The value is ours."""
STEP_REDUCTIONS = (1.0, 2.0**-8, 2.0**-16)
"""The factors on the first step that are tried in turn where a neighbour of x is not finite: close
to the edge of a domain (log near 0, say) only shorter steps stay inside. The values are ours."""
SHORT_STEP_REDUCTIONS = (1.0, 2.0**-2)
"""The factors in sixteen bits, where steps soon fall below the spacing of x."""
COARSE_EPS = 2.0**-12
"""Dtypes of a coarser `eps` than this are those of sixteen bits, float16 and bfloat16. They have
room for a few steps of a ladder only, between steps at which f curves and steps that round away."""
MOST_DIGITS = 600
"""The digits to which outputs are taken that do not move with fewer. A difference at a step of
`10^(-digits/3)` keeps two thirds of them, so 600 digits show every derivative that float64 holds,
down to 5e-324, of a value near 1."""

SCALE_RANGE = 1e4
"""Where the magnitudes of the entries of a leaf span more than this, each entry is a length of its
own; else all take the root mean square. A step that suits the largest entry would throw a far
smaller one across its domain, and a step as short as the smallest entry would drown in the rounding
of the others. The value is ours and has no derivation."""
PASSED_OVER = 1000
"""The smallest entry in this many is passed over when that span is taken. Random numbers have one
that is small by chance, and all steps would be short because of it. The value is ours and has no
derivation."""
LONGER_STEP = 4
"""A suspected entry is differenced once more at a step that is this many times as long. Truncation
grows by the square of it, so that the change shows an error bar that one step cannot have. A ladder
shows the same for sixteen evaluations in place of two. The value is ours."""
TRUNCATION_FACTOR = 4
"""The truncation error of one central difference is taken for this many times the square of its
relative step, relative to the derivative. It is `h^2 f'''/6`, with an `f'''` over the scale of x
that is some 24 times f'. Where it is larger a suspicion is followed for nothing, and where it is
smaller an entry that is a little wrong is not looked for. The value is ours."""

# ---- What counts as zero

UNDERFLOW = 2.0**-1022
"""Numbers below the smallest normal float64 count as zero, because products of subnormal numbers
have lost digits and some engines flush them to zero."""
COUNTS_AS_ZERO = 2.0**-960
"""A magnitude below this counts as zero: where an engine flushes subnormal numbers, differences of
numbers so small, and products with them, are lost. The value is ours."""
UNDERFLOW_MARGIN = 16
"""A product may be off by this many times the smallest number of its dtype, since engines round or
flush what is smaller. Two sides that flush differently would disagree without it. The value is ours
and has no derivation."""

# ---- Tolerances

SIGNIFICANT_PART = 1 / 4
"""A deviation that leaves the error bar by more than this part of `rtol` is significant, although
`rtol` allows it. One wrong entry among n shrinks by a factor near sqrt(n) in a projection and would
pass; a significant deviation is therefore traced to its entry and compared there by itself. With a
larger part wrong entries of large arrays pass, with a smaller one the truncation error of right
derivatives is traced for nothing. The value is ours and has no derivation."""
ENTRY_FLOOR = 1e-4
"""An entry that is smaller than this part of the largest entry of its column or block is compared
on the scale of that part as long as only two evaluations were made: the truncation error of a
central difference follows the large neighbours and would make the small entry fail. A ladder of
steps measures truncation, so after one every entry is compared on its own scale. The value is
ours."""
ACCURATE_PART = 1e-5
"""A derivative whose wrong entries are all off by less than this part is called accurate to so many
digits, since a constant in a narrower dtype makes such deviations. The value is ours."""
SUM_UNITS = 64
"""Two sums of the same terms are the same number up to this many units of rounding of the terms. A
sum of n terms is off by about sqrt(n) units (Higham and Mary 2019), so this covers a few thousand
terms; the value is ours."""
UNDETECTABLE_UNITS = 64
"""The number of units of rounding of f below which a change of f is taken not to show. Without such
a floor the rounding of f would pass for a slope of its derivative. The value is ours."""
VJP_UNITS = 16
"""The units of rounding that one vjp may leave in a projection; ours."""
SAME_NUMBER_UNITS = 2.0**10
"""Two numbers count as the same within this many units of rounding of the largest entry of their
leaf. Ways and modes that round differently would seem to disagree without it. The value is ours."""
CLOSE_CALL = 2
"""An entry that is off by less than this many times what is allowed is compared again with ladders.
A right entry can exceed a narrow error bar by that much, and would be named as wrong. The value is
ours and has no derivation."""
ANALYTIC_UNITS = 8
"""A derivative that the user gives by hand is taken to be off by this many units of rounding of its
terms. A right rule would fail on the rounding of the reference if it counted as exact. The value is
ours and has no derivation."""

# ---- Rounding, or an error

NEARBY_EXPONENTS = (46, 30, 20, 16, 13, 11, 9)
"""Binary exponents of the distances from x, over its scale, at which a difference is taken again.
The first points are some units of rounding in double away. The last ones are far enough for the
rounding of code that is in single precision inside to be another one from point to point. The
values are ours."""
ENOUGH_POINTS = 4
"""A difference counts as an error only if it was the same at this many points; of the seven some
may lie outside the domain of f. With one or two, rounding would be the same by chance too often."""
UNCHANGED_PART = 1 / 4
"""The part of a difference by which it may change between points and still count as the same. An
error in a rule changes as smoothly as the derivative does, by little at these distances; rounding
changes by all of itself. The value is ours."""
ISOLATED_TOLERANCES = 64
"""An automatic value that is off by more than this many tolerances at x, and right at the points
around, is wrong at x alone (a special case of the rule, say) and is not excused as rounding. The
value is ours."""
INHERITED_UNITS = 2.0**18
"""The units of rounding of its largest entry that an entry of a second derivative may be off by,
for no other reason than the rounding of the first derivative, which is differentiated. A softmax of
which all but one entry vanish has such entries: it has lost by how much the largest one is less
than 1. The value is ours and has no derivation."""
CANCELLATION_UNITS = 2.0**16
"""Units of rounding of f over the scale of x up to which a gap is put down to cancellation: where
terms as large as f cancel in a derivative, both modes are left with different roundings of zero.
The value is ours and has no derivation; a disagreement below it is not seen."""
ADJOINT_RETRIES = 4
"""No more disagreements of one table than this are taken again at other points, the largest first,
since each takes a vjp and a jvp at up to seven points. Only gaps that ill-conditioning could
explain are taken again; others fail at once."""
SHORTEST_DISTANCE_UNITS = 4
"""Points at which a gap is looked at again lie at least this many units of rounding off x. A
shorter move could round to x itself, where the gap is the same whatever makes it. The value is
ours."""
NEIGHBOUR_FACTOR = 4
"""The rounding of an automatic number is taken for this many times its change where x moves by a
unit of rounding. Two such moves see a part of what rounding can do, and a right entry of an
ill-conditioned rule would be named as wrong. The value is ours and has no derivation."""

# ---- A reference given by the user

REFERENCE_DISTANCES = (2.0**-6, 2.0**-7, 3 * 2.0**-8, 2.0**-8)
"""The distances from x, over its scale, at which an automatic derivative is compared with a given
reference again."""
REFERENCE_VALUE_UNITS = 64
"""A difference of this many units of rounding of f, relative to the median of its leaf, needs no
explanation. The value is ours."""
REFERENCE_VALUE_DISTANCES = (2.0**-12, 2.0**-10, 2.0**-9, 2.0**-8)
"""The distances from x, relative to it, at which a gap is looked at again; the values are ours."""
SCATTERED_PART = 1 / 2
"""A gap that varies between points by more than this part of its mean is rounding, and another
function has a steadier one. Without it cancellation inside of f would make its reference another
function; with a small part a function that differs by a wave would pass as rounding. The value is
ours and has no derivation."""

# ---- Kinks and other points without a derivative

JUMP_UNCHANGED = 0.15
"""A part of the samples that is the same to this part of itself, over steps that shrink by powers
of two, does not vanish with them."""
KINK_EXPONENTS = (8, 12, 16, 20)
"""Binary exponents of the steps, relative to the scale of x."""
NARROW_KINK_EXPONENTS = (3, 5, 7, 9)
"""The binary exponents in single precision, which has room for longer steps only."""
KINK_PERSISTENCE = 0.5
"""A defect that shrinks by less than this from step to step does not vanish. A smooth remainder
shrinks as the steps do, by 1/4 at least."""
VISIBLE_KINK = 1e-3
"""The part of the slope that a defect amounts to before it counts."""
KINK_ROUNDING_UNITS = 64
"""A defect of less than this many units of rounding is not seen."""
SLOPE_UNITS = 2.0**20
"""A move of f by less than this many units of rounding leaves a slope too few digits to be
compared."""
RANGE_MARGIN = 64.0
"""Within this factor of the ends of the range of a dtype a derivative is not expected to be right,
since products in its rule overflow."""
POINTS_BESIDE_KINK = 2
"""The number of points beside a kink at which the rule is judged. One lies on one
side of it, and a rule may be wrong on the other. The value is ours."""
KINK_REACH = 0.01
"""The distance of the points beside a kink from x, over the scale of each input. A longer one may
meet the next kink, and at a shorter one the steps of differences reach back across this one. The
value is ours and has no derivation."""
NARROW_KINK_REACH = 0.06
"""The same in sixteen bits, where the shorter distance would be lost in the spacing of the
numbers. The value is ours and has no derivation."""
KINK_REACH_REDUCTION = 1 / 16
"""The distances beside a kink are multiplied by this where f has no finite values, or another kink,
at the first ones. Close to the edge of a domain no point beside x could be judged without it. The
value is ours."""

# ---- Saturation

TAIL_DISTANCE = 2.0**-8
"""The distance from x, over its scale, at which f must still have its value at x for a tail. A
power of x with an offset of its own size, up to the sixth, has left its value at 0 by more than
rounding there, and its zero derivative is right."""
SATURATION_DISTANCES = (1.0, 0.25)
"""The distances from x, over its scale, at which f is asked whether it moves at all."""
ONSET_HALVINGS = 10
"""The bisection steps between where f stands still and where it moves. A kink that is met within
`2^-10` of the scale of x then moves f by more than `ONSET_UNITS` of rounding at once."""
ONSET_UNITS = 64
"""A smooth function that begins to move does so by no more than this many units of rounding; a
kink, a clip or a step moves by more at once."""
LADDER_ZERO_UNITS = 1536
"""The units of rounding over the scale of x to which a ladder of long steps shows that a derivative
is zero. It is half again the error bar of the ladder's longest window, whose shortest step is 1/64
of the scale of x."""
STANDSTILL_UNITS = 2.0**10
"""Farther off f has to move by this many units of rounding; what stays within fewer may be noise
about a constant, as `sin^2 + cos^2` is."""
CHANCE_PART = 1 / 128
"""The part of the entries of a leaf whose derivative may be as small by chance, where it crosses
zero. Only more of them than this are compared once more by themselves; the value is ours."""
DOMINATING_FACTOR = 64
"""An output that stands still hides those of its leaf that move if it is this many times larger
than the largest of them. The value is ours."""
SATURATED_COLUMNS = 4
"""No more columns than this that lie below the rounding of f get a ladder of long steps. They may
be saturated, and then a wrong zero would pass; but inputs that f does not read look the same, and
without a limit each of their columns would cost a ladder. The value is ours."""

# ---- Affine functions, and ill-conditioning

THIRD_POINT = 0.37
"""The part of the long step at which f is tried as well. It is no ratio of small numbers, so that a
staircase whose steps divide the long step, such as `x + 0.1 floor(4 x)`, is not taken for
affine."""
SHORTEST_LONG_STEP = 1 / 16
"""A long step has to have this part of the scale of x; over a shorter one a curved function looks
straight."""
LONG_STEP_COLUMNS = 4
"""The columns of a full table that get long steps; in a projected table there are two for each
leaf. A wrong constant shows in the first of them, and each costs three evaluations."""
SCATTER_FACTOR = 32
"""The automatic value may be off by this many times the scatter of the long differences; ours."""
CURVATURE_BARS = 4
"""A gap has to exceed this many times the allowed rounding: a curvature that stays below the
rounding of f may still bend the slope by as much as the error bar. The value is ours."""
CONDITION_UNITS = 8
"""The units of rounding, times the square of the spread of singular values, that two ways to
compute the map may differ by. The square covers a map that was made from an ill-conditioned one
(the inverse of a product, say); ours."""
BIDIAGONAL_STEPS = 8
"""The steps of the bidiagonalisation, each of which takes a difference and a vjp."""
NEGLIGIBLE_SINGULAR_VALUE = 1e-10
"""Below this part of the largest singular value a remainder is rounding, and the iteration ends."""

# ---- Noise, and values with fewer digits than their dtype

NOISE_POINTS = (32, 31, 29, 28, 25, 24, 21, 19, 18, 16)
"""The points at which noise is sampled, in 32nds of a step: they are exact in any dtype. Their
number leaves five residuals beside the five coefficients of the polynomial."""
UNEVEN_NOISE_POINTS = tuple(k - 0.5 * ((k * 0.6180339887) % 1.0) for k in NOISE_POINTS)
"""The points for float64, where they need not be exact. At points that are multiples of one length,
rounding to a lattice may be the same everywhere, and the noise would be measured as zero; these
differ by multiples of the golden ratio. The choice is ours."""
NOISE_DEGREE = 4
"""The degree of the polynomial whose residuals are noise. The truncation that it leaves over is of
the order of `(h / 4)^5`, so a smooth f over the step looks as smooth as it is. The value is
ours."""
ENOUGH_VALUES = 6
"""The number of different values between two powers of two that it takes to say how many digits
they carry. Fewer of them end in zeros by chance. The value is ours."""
DOUBLE_STEPS = (2.0**-18, 2.0**-28)
"""Steps relative to x of which float32 shows the first and not the second."""
DOUBLE_ROUGHNESS = 0.1
"""How far slopes over `DOUBLE_STEPS` may be apart, relative to f, in a function that carries
double."""
RUNS_APART = 4
"""Two runs of a function that is not repeatable may be this many times as far apart as the two that
were seen. The spread of two runs is often the smaller part of the spread, and error bars that cover
no more would make right derivatives of a noisy function fail. The value is ours and has no
derivation."""

# ---- A narrow dtype against double precision

DERIVATIVE_UNITS = 16
"""The units of rounding that a narrow derivative may be off by before anything is said of it. In
the design study (docs/numerics.md) 90 % of the well-conditioned derivatives were within 4 units of
rounding of their terms; four times that is ours."""
NARROW_WRONG_FACTOR = 4
"""Up to this many times the allowed rounding a deviation is inaccuracy, a note; beyond it, what
stays the same at all points is an error. The factor is that of the design study
(docs/numerics.md)."""
STANDARD_ERRORS = 8
"""A common factor differs from one only if it does so by this many standard errors of its mean. The
value is ours."""
NEAR_ULPS = 2
"""The first points lie within this many units of rounding of x: between them nothing but
conditioning moves a derivative."""
FAR_DISTANCES = (2.0**-6, 2.0**-6, 2.0**-5, 2.0**-4, 2.0**-3, 2.0**-2)
"""The distances of the other points, relative to x. They are so far apart that the rounding errors
at two of them have nothing in common. The values are ours."""
LEAF_PROBES = 4
"""The random probes that are shared out among the leaves; each leaf gets two of them at least."""
WORST_ENTRIES = 32
"""The number of entries that are looked at closely, those farthest off."""
DOUBLINGS = 12
"""x is doubled this many times until a function that stands still is seen to move."""
ENOUGH_FAR_POINTS = 3
"""It takes this many points around x to tell rounding from an error of a formula: fewer have no
variance to speak of, and rounding would be the same at all of them by chance. The value is the
least that has a mean and two degrees of freedom beside it."""
CONSTANT_RATIO = 4.0
"""A deviation is the same at all points if its squared mean exceeds this many times its variance
between them. Rounding has a mean near zero and would count as an error with a small ratio; an
additive error that varies with x would count as rounding with a large one. The value is ours and
has no derivation."""
CONSTANT_VALUE_RATIO = 16.0
"""The same for values of f, whose deviation makes the function in double precision another one.
What is concluded is more, so it takes more evidence. The value is ours and has no derivation."""
NARROW_BIAS_UNITS = 1.25
"""In sixteen bits all of a leaf may be off by one factor that differs from 1 by this many units of
rounding. A scalar that multiplies the whole derivative is itself rounded by up to one. With
`DERIVATIVE_UNITS` a factor of 1.05 would pass in bfloat16. The value is ours."""
NARROW_VALUE_UNITS = 4
"""In sixteen bits a deviation of the derivative counts if it would move f by more than this many
units of rounding. A smaller one was lost in an intermediate value; `DERIVATIVE_UNITS` of these
coarse units would hide real errors. The value is ours and has no derivation."""
BIAS_DRIFTS = 2
"""A common factor of the derivative counts if it exceeds this many times the one of the values of
f. A function whose values are off by a factor in the narrow dtype has a derivative that is, and its
rule is right. The value is ours and has no derivation."""
STAIRS_APART = 2
"""Values in the narrow dtype that lie on the steps of a staircase may be this many steps off those
in double. One step is the rounding of a value to the staircase, and a second one that of x. Without
it `(x + c) - c` with a large `c` would count as another function. The value is ours."""

# ---- One engine against another

CROSS_NEAR_POINTS = 4
"""How many points near x are taken, at which every entry is some units of rounding off."""
CROSS_EXPONENTS = (30, 20, 16, 13, 11, 9)
"""Binary exponents of how far off the points lie, over each entry, at which an error has to stay.
"""
CROSS_FACTORS = (1 / 4, 1 / 2, 2.0, 4.0)
"""At these multiples of x a function is seen to move that stands still next to x, since it computes
through larger numbers."""
CROSS_FACTOR_SPREAD = 0.1
"""These multiples vary by this part of themselves from entry to entry. Multiples of one number for
all entries would keep every ratio of entries, and a difference that depends on one would look
constant. The value is ours."""
LATTICE_UNITS = 8
"""Values of f whose spacing exceeds this many units of rounding lie on a lattice of larger numbers,
through which f computes. The last bits of a few values are zero by chance, which makes a spacing of
some units. The value is ours and has no derivation."""
SPACING_UNITS = 2.0**10
"""Units of rounding up to which the spacing of values is put down to the rounding of larger ones,
and not to a function that rounds."""
CROSS_WRONG_FACTOR = 4
"""A deviation is looked into from this many times what is allowed on."""
STRAY_FACTOR = 2.0**10
"""A difference that does not last is put down to rounding up to this many times what is allowed."""
PLAIN_NUMBER_RTOL = 1e-12
"""Two engines that return plain Python numbers beside their arrays may differ by this part of them.
They are compared as a part of the structure of the outputs, and a last digit is none. The value is
ours."""

# ---- Properties that hold without an estimate

MAP_OF_ZERO_UNITS = 64
"""A map may leave this many units of rounding of terms that cancel in it where it is handed zero.
The value is ours."""
EXTRA_RUNS = 3
"""A rule that is not repeatable is called this many times more, since how far two runs are apart
changes from pair to pair, and the largest of several is what `nondet_tol` has to allow."""
REORDERING_UNITS = 1024
"""Another order of additions (atomics, threads) changes a sum by no more than this many units of
rounding of the largest entry. A larger limit takes randomness for atomics, and a smaller one calls
the spread of a right backward pass on a GPU randomness. The value is ours."""
REORDERING_PART = 2.0**-10
"""The limit relative to the largest entry, where terms that are far larger cancel in the sums.
Between the two limits it is left open what makes the runs differ; the value is ours."""
RESIDUE_UNITS = 1024
"""A derivative that should be zero may be this many units of rounding of f over the scale of x.
What cancels in it may be some hundred times f: a mean of one number less that number, over its
spread, for example. The value is ours."""
LEAK_UNITS = 2.0**14
"""A number counts as a derivative, where f does not move, only if it stands out by this many units
of rounding of f and of the gradient. Rounding of a backward pass is no leak. The value is ours."""
LEAK_BARS = 8
"""A slope along a block that f should not read counts if it exceeds this many of its error bars.
A bar is exceeded now and then, and a finding that a derivative is missing would follow. The value
is ours and has no derivation."""
SYMMETRIC_RTOL = 1e-6
"""A gradient counts as symmetrised if its two triangles differ by no more than this part. The
finding then says so, since a symmetrised gradient of a function that reads one triangle is a known
convention. No verdict depends on it. The value is ours."""
MOVE_LENGTHS = (1.0, -1.0, 2.0**-10, 2.0**-20)
"""The lengths of moves, over the scale of x, under all of which f has to stand still. f may be flat
at long moves, where it is saturated, and at short ones, where it is rounded to a grid."""
SYMMETRY_LEAVES = 4
"""Up to this many inputs, and outputs, each is tried by itself; more are tried all together."""

# ---- How much is compared, confirmed and traced

FULL_MODE = 4
"""Up to this many real coordinates of inputs and outputs together `mode="auto"` takes the whole
Jacobian: a handful of evaluations more, and every wrong entry is named."""
FULL_MODE_BY_REFERENCE = 64
"""The same where a reference gives the derivative: f itself is not evaluated for it."""
PATTERNS_ALONE = 4
"""The largest number of checked inputs for which each pattern is also applied to every input
alone, the others staying as they are. Without a limit the number of points would grow with the
number of inputs times that of the patterns. The value is ours."""
SEPARATIONS = 3
"""Entries that are too small to show among larger ones are compared by themselves up to this many
times, each time without those that showed. The gradient of `sqrt` at inputs from 1e-12 to 40 takes
these; without them a wrong sign of a small entry passes. The value is ours."""
LADDER_COLUMNS = 32
"""After this many columns with a disagreement, or as many with a doubt, the rest are judged by
their two evaluations. The verdict stands by then, and a wrong rule would otherwise cost two ladders
for every column of a large input. The value is ours."""
CONFIRMING_EVALUATIONS = 16
"""Evaluations of the ladders that must confirm an entry."""
TRACED_PROJECTIONS = 4
"""Projections of a mode that are traced to entries, the first or the most significant ones."""

# ---- Which entries, and which mistake

SIGNIFICANT_BARS = 4.0
"""A residual is significant beyond this many error bars. Bars of many differences are exceeded now
and then, and a search that follows such a residual tests right candidates. The value is ours."""
PATTERN_EVIDENCE = 3.0
"""A pattern is claimed from this many decades on: accident meets its numbers less than once in a
thousand times."""
PLACE_EVIDENCE = 2.0
"""A place is named from this many decades on: wrong entries strewn at random fill it less than once
in a hundred times."""
MOST_EVIDENCE = 1e16
"""One number that fits is evidence of no more than this, the inverse of the rounding of float64.
Without it a single entry that fits exactly, as a zero does, would outweigh all others."""

# ---- Coordinates of constraint sets

CHART_RADIUS = 2.0**-4
"""The limit on how far coordinates go, which has two uses.

Coordinates go no further than this from an orthogonal matrix, in the Frobenius norm; further away
`POLAR_STEPS` steps would not reach the polar factor to rounding. And a positive number keeps at
least this part of itself; without that a step could take it to zero or below, where functions such
as the logarithm are not defined. The value is ours."""
POLAR_STEPS = 4
"""The number of steps of the Newton-Schulz iteration for the polar factor.

The iteration converges quadratically: the error is `CHART_RADIUS` at first, then
`3/2 CHART_RADIUS^2`, 5e-5, 4e-9 and 3e-17, which is below the rounding of float64. With fewer steps
the points would be off the set by more than rounding. The iteration is standard; the fixed number
of steps is ours."""
OFF_SET_UNITS = 32
"""A point may be off its set by this many units of rounding, times the root of the number of terms
that are added. Points that are in their set up to rounding would be refused without it. The growth
with the root is that of independent rounding errors; the value is ours."""
MOST_OFF_SET = 0.05
"""A point may be off its set by no more than this in any dtype. In sixteen bits the units of
rounding alone would let points pass that are far off it. The value is ours."""
TIED_STEPS = 16
"""Two sorted entries are tied if they are closer than this many steps of central differences: half
of a smaller gap leaves too little room for such steps. The value is ours."""
TIED_UNITS = 64
"""An entry moves towards one that it is tied to only if they are more than this many spacings of x
apart: in a smaller gap rounding could change their order. The value is ours."""
