//! Text that is as hard to compress as prose, the same every time.

/// An xorshift generator: the same text every time.
pub struct Random(u64);

impl Random {
    /// From a seed that is not 0.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below this one, which is not 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    /// From 0 to 1.
    fn share(&mut self) -> f64 {
        self.below(1 << 40) as f64 / (1_u64 << 40) as f64
    }
}

/// Words by how often they are used, the most used first.
const WORDS: &str = "the of and to a in is that for it as with on be by this are not or from at an which but have was \
    if one can will all when has you its more so no we there what they would their only each out into then other than \
    any these may time do first up such two same file how must some new set like line over where because like see use \
    used make read write name value list way work called given long part does most need after before here through \
    between without number under again state since while still every small order place right end point case case \
    second known data change place text both own form type back field less last enough error look return function \
    hold means next open left large result system example always start never find server memory program message \
    answer question model people water house light world school country problem hand high year keep thought city tree \
    cross farm hard story saw far sea draw late run press close night real life few north book carry took science eat \
    room friend began idea fish mountain stop once base hear horse cut sure watch color face wood main plain girl \
    usual young ready above ever red though feel talk bird soon body dog family direct pose leave song measure door \
    product black short class wind happen complete ship area half rock fire south piece told knew pass top whole king \
    space heard best hour better true during hundred five remember step early west ground interest reach fast verb \
    sing listen six table travel morning ten simple several vowel toward war lay against pattern slow center love \
    person money serve appear road map rain rule govern pull cold notice voice unit power town fine certain fly fall \
    lead cry dark machine note wait plan figure star box noun rest correct able pound done beauty drive stood contain \
    front teach week final gave green quick develop ocean warm free minute strong special mind behind clear tail \
    produce fact street inch multiply nothing course stay wheel full force blue object decide surface deep moon island \
    foot busy test record boat common gold possible plane stead dry wonder laugh thousand ago ran check game shape \
    equate hot miss brought heat snow tire bring yes distant fill east paint language among compiler buffer thread \
    pointer socket packet kernel register iterate borrow lifetime schema cluster latency";

/// What a word may end in beside itself.
const ENDINGS: [&str; 8] = ["", "", "", "", "s", "ed", "ing", "ly"];

/// ASCII prose of this length: words by Zipf's law, with endings, names that hardly come again, and sentences.
#[must_use]
pub fn prose(length: usize) -> String {
    let words: Vec<&str> = WORDS.split_whitespace().collect();
    let weights: Vec<f64> = (0..words.len())
        .scan(0.0, |sum, rank| {
            *sum += 1.0 / (rank as f64 + 2.7);
            Some(*sum)
        })
        .collect();
    let mut random = Random::new(0x9E37_79B9_7F4A_7C15);
    let mut text = String::with_capacity(length + 64);
    let mut in_sentence = 0;
    while text.len() < length {
        let mut word = match random.below(100) {
            0..4 => name(&mut random),
            _ => {
                let at = random.share() * weights[weights.len() - 1];
                let rank = weights.partition_point(|sum| *sum < at).min(words.len() - 1);
                let ending = if rank < 60 { "" } else { ENDINGS[random.below(8) as usize] };
                format!("{}{ending}", words[rank])
            }
        };
        if in_sentence == 0 {
            word[..1].make_ascii_uppercase();
        }
        in_sentence += 1;
        text.push_str(&word);
        text.push_str(match random.below(100) {
            0..7 if in_sentence > 3 => {
                in_sentence = 0;
                if random.below(5) == 0 { ".\n\n" } else { ". " }
            }
            7..13 => ", ",
            _ => " ",
        });
    }
    text.truncate(length);
    text
}

/// A word of two to four syllables.
fn name(random: &mut Random) -> String {
    let (first, second) = (b"bcdfghklmnprstvw", b"aeiou");
    let mut name = String::new();
    for _ in 0..2 + random.below(3) {
        name.push(char::from(first[random.below(16) as usize]));
        name.push(char::from(second[random.below(5) as usize]));
    }
    name
}
