// Hidden layers of tanh perceptrons on a CPU, alone or as attention heads; fused.py compiles it.
//
// torch's operations write a state to memory, and the next operation reads it from there. Here a
// tile of observation sets goes through all layers of a perceptron before the next tile starts, so
// that states stay in the nearest cache, and product, bias and activation are one pass. The way
// back asks for the states of the next tile while it works on this one.
//
// tanh(x) = 2 s - 1, s = sigmoid(2 x), and the factors move into the next layer (sigmoid.py):
//
//     2 (y W + b) = s A + B,    A = 4 W,    B = 2 (b - 1^T W),    y = 2 s - 1;
//
// in the first layer A = 2 W, B = 2 b. What is kept are the states s. Everything is float32. Rows of
// a tile are its first sensors, then its second ones, ...; `whole` adds rows that belong to no
// sensor, whose gradient is zero.

#include <cstdint>
#include <cstring>
#include <vector>

namespace {

#ifdef __AVX512F__
constexpr int LANES = 16, ROWS = 8;  // sums of a block take 16 of 32 registers
#else
constexpr int LANES = 8, ROWS = 6;  // 12 of 16
#endif
constexpr int TILE_ROWS = 96;  // at most, if a set has no more sensors: 12 KiB for 32 neurons

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

inline vec load(const float* from) { return *reinterpret_cast<const vec*>(from); }
inline void store(float* to, vec value) { *reinterpret_cast<vec*>(to) = value; }
inline vec broadcast(float value) { return vec{} + value; }

inline float sum(vec x) {
    float parts[LANES];
    store(parts, x);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) parts[k] += parts[k + half];
    return parts[0];
}

inline float dot(int width, const float* a, const float* b) {
    vec found{};
    for (int k = 0; k < width; k += LANES) found += load(a + k) * load(b + k);
    return sum(found);
}

// exp(x) = 2^n exp(r), |r| <= ln(2) / 2, to 2 ulp: the polynomial has the least relative error of
// its degree, 7e-8.
inline vec exponential(vec x) {
    x = x > 87.0f ? broadcast(87.0f) : x;
    x = x < -87.0f ? broadcast(-87.0f) : x;
    const float integers = 12582912.0f;  // 1.5 * 2^23: floats near it are integers
    vec shifted = x * 1.44269504088896341f + integers;
    vec r = x - (shifted - integers) * 0.693147180559945309f;
    vec p = broadcast(8.3375472888e-3f);
    p = p * r + 4.1910490379e-2f;
    p = p * r + 1.6666728736e-1f;
    p = p * r + 4.9999015727e-1f;
    p = p * r + 1.0000001354f;
    p = p * r + 1.0f;
    ints exponents = reinterpret_cast<ints&>(shifted) << 23;
    ints found = reinterpret_cast<ints&>(p) + exponents;
    return reinterpret_cast<vec&>(found);
}

inline vec slope_of(vec state) { return state * (1.0f - state); }

enum class End { sigmoid, slope, add };

// A block of C (ROWS, BANDS * LANES): sigmoid(bias + A B), or A B times s (1 - s) with s from
// `states`, or C + A B. A, B and C have rows of `of_a`, `of_b`, `of_b` values, those of bias are
// `of_bias` apart.
template <End end, int BANDS>
inline void product_block(int inner, const float* a, int of_a, const float* b, int of_b,
                          const float* bias, int of_bias, const float* states, float* c) {
    vec sums[ROWS][BANDS];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
        for (int band = 0; band < BANDS; band++)
            sums[i][band] = end == End::sigmoid ? load(bias + i * of_bias + band * LANES) : vec{};
    for (int k = 0; k < inner; k++) {
        vec row[BANDS];
        for (int band = 0; band < BANDS; band++) row[band] = load(b + k * of_b + band * LANES);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++)
            for (int band = 0; band < BANDS; band++) sums[i][band] += a[i * of_a + k] * row[band];
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
        for (int band = 0; band < BANDS; band++) {
            int place = i * of_b + band * LANES;
            vec x = sums[i][band];
            if (end == End::sigmoid) x = 1.0f / (1.0f + exponential(-x));
            if (end == End::slope) x *= slope_of(load(states + place));
            if (end == End::add) x += load(c + place);
            store(c + place, x);
        }
}

template <End end>
inline void product(int rows, int inner, int width, const float* a, int of_a, const float* b,
                    const float* bias, int of_bias, const float* states, float* c) {
    for (int column = 0; column < width; column += 2 * LANES)
        for (int row = 0; row < rows; row += ROWS) {
            int place = row * width + column;
            const float* from = a + row * of_a;
            const float* given = end == End::sigmoid ? bias + row * of_bias + column : nullptr;
            const float* below = end == End::slope ? states + place : nullptr;
            if (column + LANES < width)
                product_block<end, 2>(inner, from, of_a, b + column, width, given, of_bias, below,
                                      c + place);
            else
                product_block<end, 1>(inner, from, of_a, b + column, width, given, of_bias, below,
                                      c + place);
        }
}

// C (COUNT, BANDS * LANES) += A^T B for COUNT columns of A, total += the sum of B's rows. What
// stands `ahead` of A is asked for.
template <int COUNT, int BANDS>
inline void outer_block(int rows, const float* a, int of_a, const float* b, int of_b, float* c,
                        float* total, int64_t ahead) {
    vec sums[COUNT][BANDS], totals[BANDS] = {};
#pragma GCC unroll 8
    for (int i = 0; i < COUNT; i++)
        for (int band = 0; band < BANDS; band++) sums[i][band] = load(c + i * of_b + band * LANES);
    for (int row = 0; row < rows; row++) {
        __builtin_prefetch(a + row * of_a + ahead, 0, 2);
        vec values[BANDS];
        for (int band = 0; band < BANDS; band++) {
            values[band] = load(b + row * of_b + band * LANES);
            totals[band] += values[band];
        }
#pragma GCC unroll 8
        for (int i = 0; i < COUNT; i++)
            for (int band = 0; band < BANDS; band++)
                sums[i][band] += a[row * of_a + i] * values[band];
    }
#pragma GCC unroll 8
    for (int i = 0; i < COUNT; i++)
        for (int band = 0; band < BANDS; band++) store(c + i * of_b + band * LANES, sums[i][band]);
    if (total)
        for (int band = 0; band < BANDS; band++)
            store(total + band * LANES, load(total + band * LANES) + totals[band]);
}

// C (inner, width) += A^T B, total (width) += the sum of the rows of B (rows, width).
inline void outer(int rows, int inner, int width, const float* a, int of_a, const float* b,
                  float* c, float* total, int64_t ahead) {
    for (int column = 0; column < width; column += 2 * LANES) {
        bool two = column + LANES < width;
        float* to = total + column;
        for (int i = 0; i < inner;) {
            bool many = i + ROWS <= inner;
            float* block = c + i * width + column;
            if (many && two)
                outer_block<ROWS, 2>(rows, a + i, of_a, b + column, width, block, to, ahead);
            else if (many)
                outer_block<ROWS, 1>(rows, a + i, of_a, b + column, width, block, to, ahead);
            else if (two)
                outer_block<1, 2>(rows, a + i, of_a, b + column, width, block, to, ahead);
            else
                outer_block<1, 1>(rows, a + i, of_a, b + column, width, block, to, ahead);
            i += many ? ROWS : 1;
            to = nullptr;
        }
    }
}

inline int up_to(int multiple, int number) { return (number + multiple - 1) / multiple * multiple; }
inline int whole(int rows) { return up_to(ROWS, rows); }

// Copy a matrix (rows, width) to rows of `to` values.
inline void copy(int rows, int width, const float* a, float* b, int to) {
    for (int row = 0; row < rows; row++)
        for (int k = 0; k < width; k++) b[row * to + k] = a[row * width + k];
}

// As many sets as rows allow; a multiple of ROWS wastes none.
inline int sets_of_tile(int sets, int sensors) {
    int found = TILE_ROWS / sensors;
    if (found > ROWS) found -= found % ROWS;
    if (found > sets) found = sets;
    return found < 1 ? 1 : found;
}

}  // namespace

// One call's shapes and inputs: `_Shapes` of fused.py. A perceptron is a head without scores whose
// sets have one sensor each.
struct Shapes {
    int32_t heads, sets, sensors, inputs, depth;
    int32_t own;                 // b_1 has a row for each set (one head, one sensor)
    const int32_t* widths;       // of the layers, multiples of `lanes`
    const int64_t* strides;      // of W_1, W_2, ...: between rows, between columns
    const float* tokens;         // (sensors, sets, inputs)
    const uint8_t* mask;         // (sensors, sets), or null: all are there
    const float* score;          // (heads, last width), or null
    const float* const* layers;  // W_1, b_1, W_2, ...: of the scores, if any, then of the values
    float* saved;                // for the way back: `saved_values` floats
};

namespace {

typedef std::vector<float> floats;

struct Tiles : Shapes {
    int most, number, rows;  // sets of a tile, tiles, rows of a tile
    int last, all, step;     // width of the last layer, sum of widths, values of a row of tokens

    explicit Tiles(const Shapes& shapes) : Shapes(shapes), all(0) {
        most = sets_of_tile(sets, sensors);
        number = (sets + most - 1) / most;
        rows = whole(most * sensors);
        last = widths[depth - 1];
        step = up_to(LANES, inputs);
        for (int k = 0; k < depth; k++) all += widths[k];
    }
    int perceptrons() const { return score ? 2 * heads : heads; }
    int of_values(int head) const { return score ? heads + head : head; }
    int inside(int tile) const { return sets - tile * most < most ? sets - tile * most : most; }
    int used(int tile) const { return inside(tile) * sensors; }
    int64_t tile_values() const { return static_cast<int64_t>(rows) * all; }
    // States of a perceptron in a tile, those of one layer after another.
    float* states(int perceptron, int tile) const {
        return saved + (static_cast<int64_t>(perceptron) * number + tile) * tile_values();
    }
    float* last_states(int perceptron, int tile) const {
        return states(perceptron, tile) + tile_values() - static_cast<int64_t>(rows) * last;
    }
    float* shares(int head, int tile) const {  // of the sensors, by the softmax
        return states(perceptrons(), 0) + (static_cast<int64_t>(head) * number + tile) * rows;
    }
    int64_t place(int sensor, int tile) const {  // of a tile's first set
        return static_cast<int64_t>(sensor) * sets + tile * most;
    }

    // Copy a tile of the tokens to x (rows, step).
    void gather(int tile, floats& x) const {
        int some = inside(tile);
        for (int i = 0; i < sensors; i++)
            copy(some, inputs, tokens + place(i, tile) * inputs, &x[i * some * step], step);
        for (int row = used(tile); row < rows; row++)
            memset(&x[row * step], 0, step * sizeof(float));
    }

    // Turn scores into shares.
    void softmax(int tile, float* scores) const {
        int some = inside(tile), end = used(tile);
        for (int set = 0; set < some; set++) {
            auto there = [&](int row) { return !mask || mask[place(row / some, tile) + set]; };
            float largest = -3e38f, total = 0;
            for (int row = set; row < end; row += some)
                if (there(row) && !(scores[row] < largest)) largest = scores[row];
            for (int row = set; row < end; row += some) {
                scores[row] = there(row) ? exponential(broadcast(scores[row] - largest))[0] : 0.0f;
                total += scores[row];
            }
            for (int row = set; row < end; row += some) scores[row] /= total;
        }
    }
};

// A perceptron's layers as they act on states, and their gradients.
struct Perceptron {
    const Tiles& of;
    int which;
    std::vector<floats> weights, biases, transposed, of_weights, of_biases;
    floats g, other;

    Perceptron(const Tiles& tiles, int which) : of(tiles), which(which) {
        for (int k = 0; k < of.depth; k++) {
            int width = of.widths[k];
            const float *weight = of.layers[2 * k] + start(k), *bias = of.layers[2 * k + 1];
            weights.emplace_back(inner(k) * width);
            biases.emplace_back((own(k) ? of.rows : 1) * width);
            for (int j = 0; j < width && !own(k); j++) biases[k][j] = bias[which * width + j];
            for (int i = 0; i < inner(k); i++)
                for (int j = 0; j < width; j++) {
                    float value = weight[i * of.strides[2 * k] + j * of.strides[2 * k + 1]];
                    weights[k][i * width + j] = (k ? 4.0f : 2.0f) * value;
                    if (k) biases[k][j] -= value;
                }
            for (float& value : biases[k]) value *= 2.0f;
        }
    }
    int inner(int layer) const { return layer ? of.widths[layer - 1] : of.inputs; }
    bool own(int layer) const { return layer == 0 && of.own; }
    int64_t start(int layer) const {  // of W_k among those of all perceptrons
        return static_cast<int64_t>(which) * inner(layer) * of.widths[layer];
    }
    int64_t start_of_own(int tile) const { return of.place(0, tile) * of.widths[0]; }

    void forward(int tile, const floats& tokens) {
        int used = of.used(tile), step = of.step;
        for (int k = 0; k < used * of.widths[0] && of.own; k++)
            biases[0][k] = 2.0f * of.layers[1][start_of_own(tile) + k];
        const float* x = tokens.data();
        float* found = of.states(which, tile);
        for (int k = 0; k < of.depth; k++) {
            product<End::sigmoid>(whole(used), inner(k), of.widths[k], x, step, weights[k].data(),
                                  biases[k].data(), own(k) ? of.widths[0] : 0, nullptr, found);
            x = found;
            step = of.widths[k];
            found += of.rows * step;
        }
    }

    void prepare_back() {
        int widest = 0;
        for (int k = 0; k < of.depth; k++) {
            int width = of.widths[k], to = k ? inner(k) : of.step;
            transposed.emplace_back(width * to);
            for (int i = 0; i < inner(k); i++)
                for (int j = 0; j < width; j++)
                    transposed[k][j * to + i] = weights[k][i * width + j];
            of_weights.emplace_back(inner(k) * width);
            of_biases.emplace_back(width);
            if (width > widest) widest = width;
        }
        g.resize(of.rows * widest);
        other.resize(of.rows * widest);
    }

    // Lead g, the gradient before the last sigmoid, to the layers and tokens of a tile.
    void back(int tile, const floats& tokens, floats& of_tokens, float* const* of_layers) {
        int used = of.used(tile), width = of.last;
        const float* states = of.last_states(which, tile);
        for (int k = of.depth - 1; k > 0; k--) {
            int below = inner(k);
            states -= of.rows * below;
            outer(used, below, width, states, below, g.data(), of_weights[k].data(),
                  of_biases[k].data(), of.tile_values());
            product<End::slope>(whole(used), width, below, g.data(), width, transposed[k].data(),
                                nullptr, 0, states, other.data());
            g.swap(other);
            width = below;
        }
        outer(used, of.inputs, width, tokens.data(), of.step, g.data(), of_weights[0].data(),
              of_biases[0].data(), 0);
        for (int k = 0; k < used * width && of.own; k++)
            of_layers[1][start_of_own(tile) + k] = 2.0f * g[k];
        product<End::add>(whole(used), width, of.step, g.data(), width, transposed[0].data(),
                          nullptr, 0, nullptr, of_tokens.data());
    }

    void write_gradients(float* const* of_layers, const int64_t* strides) const {
        for (int k = 0; k < of.depth; k++) {
            int width = of.widths[k];
            float* to = of_layers[2 * k] + start(k);
            for (int i = 0; i < inner(k); i++)
                for (int j = 0; j < width; j++)
                    to[i * strides[2 * k] + j * strides[2 * k + 1]] =
                        k ? 4.0f * of_weights[k][i * width + j] - 2.0f * of_biases[k][j]
                          : 2.0f * of_weights[k][i * width + j];
            for (int j = 0; j < width && !own(k); j++)
                of_layers[2 * k + 1][which * width + j] = 2.0f * of_biases[k][j];
        }
    }
};

}  // namespace

extern "C" {

int32_t lanes() { return LANES; }

int64_t saved_values(const Shapes* shapes) {
    Tiles tiles(*shapes);
    int64_t shares = static_cast<int64_t>(tiles.heads) * tiles.number * tiles.rows;
    return tiles.perceptrons() * tiles.number * tiles.tile_values() + shares;
}

// Write y (heads, sets, last width): the last layer's values, averaged over sensors.
void forward(const Shapes* shapes, float* y) {
    Tiles tiles(*shapes);
    int width = tiles.last;
    floats x(tiles.rows * tiles.step);
    for (int head = 0; head < tiles.heads; head++) {
        Perceptron scores(tiles, head), values(tiles, tiles.of_values(head));
        for (int tile = 0; tile < tiles.number; tile++) {
            int used = tiles.used(tile), some = tiles.inside(tile);
            tiles.gather(tile, x);
            float* shares = tiles.shares(head, tile);
            if (tiles.score) {
                scores.forward(tile, x);
                const float* states = tiles.last_states(head, tile);
                for (int row = 0; row < used; row++)
                    shares[row] = 2.0f * dot(width, states + row * width, tiles.score + head * width);
                tiles.softmax(tile, shares);
            }
            values.forward(tile, x);
            const float* states = tiles.last_states(tiles.of_values(head), tile);
            float* to = y + (static_cast<int64_t>(head) * tiles.sets + tile * tiles.most) * width;
            for (int k = 0; k < some * width; k++) to[k] = -1.0f;
            for (int row = 0; row < used; row++) {
                float factor = 2.0f * (tiles.score ? shares[row] : 1.0f);
                float* sums = to + row % some * width;
                for (int k = 0; k < width; k += LANES)
                    store(sums + k, load(sums + k) + factor * load(states + row * width + k));
            }
        }
    }
}

// Write of_tokens (sensors, sets, inputs), of_score (heads, last width) and of_layers (with strides of
// their own), given the gradient of y.
void backward(const Shapes* shapes, const float* of_y, float* of_tokens, float* of_score,
              float* const* of_layers, const int64_t* of_strides) {
    Tiles tiles(*shapes);
    int width = tiles.last, inputs = tiles.inputs;
    int64_t ahead = tiles.tile_values();
    floats x(tiles.rows * tiles.step), of_x(x.size()), slopes(tiles.rows);
    for (int head = 0; head < tiles.heads; head++) {
        Perceptron scores(tiles, head), values(tiles, tiles.of_values(head));
        const float* score = tiles.score + head * width;
        floats of_this_score(width);
        values.prepare_back();
        if (tiles.score) scores.prepare_back();
        for (int tile = 0; tile < tiles.number; tile++) {
            int used = tiles.used(tile), some = tiles.inside(tile);
            const float* upstream =
                of_y + (static_cast<int64_t>(head) * tiles.sets + tile * tiles.most) * width;
            const float* shares = tiles.shares(head, tile);
            const float* states = tiles.last_states(tiles.of_values(head), tile);
            tiles.gather(tile, x);
            memset(of_x.data(), 0, of_x.size() * sizeof(float));
            for (int row = 0; row < whole(used); row++) {
                float share = row >= used ? 0.0f : tiles.score ? shares[row] : 1.0f;
                vec slope{};
                for (int k = 0; k < width; k += LANES) {
                    __builtin_prefetch(states + row * width + k + ahead, 0, 2);
                    vec state = load(states + row * width + k);
                    vec g = 2.0f * load(upstream + row % some * width + k);
                    slope += state * g;
                    store(&values.g[row * width + k], share * g * slope_of(state));
                }
                slopes[row] = sum(slope);
            }
            values.back(tile, x, of_x, of_layers);
            if (tiles.score) {
                for (int set = 0; set < some; set++) {  // through the softmax
                    float mean = 0;
                    for (int row = set; row < used; row += some) mean += shares[row] * slopes[row];
                    for (int row = set; row < used; row += some)
                        slopes[row] = 2.0f * shares[row] * (slopes[row] - mean);
                }
                states = tiles.last_states(head, tile);
                for (int k = 0; k < width; k += LANES) {
                    vec found{};  // slopes of a set cancel: sums of a tile lose fewer digits
                    for (int row = 0; row < whole(used); row++) {
                        __builtin_prefetch(states + row * width + k + ahead, 0, 2);
                        vec state = load(states + row * width + k);
                        float slope = row < used ? slopes[row] : 0.0f;
                        found += slope * state;
                        store(&scores.g[row * width + k], slope * load(score + k) * slope_of(state));
                    }
                    store(&of_this_score[k], load(&of_this_score[k]) + found);
                }
                scores.back(tile, x, of_x, of_layers);
            }
            for (int i = 0; i < tiles.sensors; i++) {
                float* to = of_tokens + tiles.place(i, tile) * inputs;
                const float* from = &of_x[i * some * tiles.step];
                for (int set = 0; set < some; set++, to += inputs, from += tiles.step)
                    for (int k = 0; k < inputs; k++) to[k] = from[k] + (head ? to[k] : 0.0f);
            }
        }
        values.write_gradients(of_layers, of_strides);
        if (tiles.score) {
            scores.write_gradients(of_layers, of_strides);
            copy(1, width, of_this_score.data(), of_score + head * width, width);
        }
    }
}

}  // extern "C"
